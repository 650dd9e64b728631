// SPDX-License-Identifier: Apache-2.0
//
// Scores of index keys as a matrix product: the keys of up to kTile entries are laid side by side
// as a tile of packed.h, codes and scales as they are, and the row's heads are multiplied by it.
// With 4-bit keys and queries every product is exact, so a score is the reference's to the bit. The
// sum over heads runs in double, in head order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "kernels/cpu/best.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/run.h"
#include "kernels/cpu/store_rows.h"
#include "kernels/ref/access.h"

namespace weir::kernels::cpu {
namespace {

using ref::As;
using ref::F32;
using ref::I32;

constexpr float kLeast = -std::numeric_limits<float>::infinity();

// A tile of keys in a thread's scratch.
class KeyTile {
 public:
  KeyTile(const KernelTable& kernels, const IndexSelectArgs& args, std::byte* at)
      : kernels_(kernels), args_(args), packed_(args.keys.format == RowFormat::kFp4Block32) {
    tile_.storage = packed_ ? Storage::kF4 : Storage::kF32;
    tile_.scale_kind = packed_ ? Scales::kPerOutput : Scales::kNone;
    tile_.block = packed_ ? 32 : kBlockMax;
    tile_.rows = kTile;
    tile_.cols = args.width;
    tile_.tiles = 1;
    const StoredShape& shape = kStoredShape[static_cast<int>(tile_.storage)];
    tile_.tile_bytes = args.width / shape.inputs * shape.bytes;
    tile_.scale_tile_bytes = args.width / 32 * kTile;
    codes_ = reinterpret_cast<uint8_t*>(at);
    scales_ = codes_ + tile_.tile_bytes;
    row_ = reinterpret_cast<float*>(scales_ + tile_.scale_tile_bytes);
    tile_.codes = codes_;
    tile_.scales = scales_;
    dots_ = row_ + AlignUp<int64_t>(args.width, 16);
  }
  static size_t Bytes(const IndexSelectArgs& args) {
    const auto width = static_cast<size_t>(AlignUp<int64_t>(args.width, 32));
    return width * kTile * 4 + width * 2 + width * 4 + static_cast<size_t>(args.heads) * kTile * 4;
  }

  void Put(int64_t k, const std::byte* key) {
    if (packed_) {
      for (int64_t i = 0; i < args_.width / 8; ++i) {
        std::memcpy(codes_ + (i * kTile + k) * 4, key + i * 4, 4);
      }
      for (int64_t b = 0; b < args_.width / 32; ++b) {
        scales_[b * kTile + k] = static_cast<uint8_t>(key[args_.width / 2 + b]);
      }
      return;
    }
    DecodeStoreRow(kernels_, args_.keys.format, key, args_.width, row_);
    auto* values = reinterpret_cast<float*>(codes_);
    for (int64_t i = 0; i < args_.width; ++i) values[i * kTile + k] = row_[i];
  }

  // score[k] of `count` keys for row r.
  void Score(const Team::Part& part, int64_t r, int count, float* score) {
    const float* q = F32(args_.q) + r * args_.heads * args_.width;
    const float* weight = F32(args_.weight) + r * args_.heads;
    MultiplyTileRows(
        kernels_, part, tile_, 0, args_.heads, count,
        [&](int64_t h) { return q + h * args_.width; },
        [&](int64_t h) { return dots_ + h * kTile; });
    double sum[kTile] = {};
    for (int64_t h = 0; h < args_.heads; ++h) {
      const auto factor = static_cast<float>(double{weight[h]} * args_.scale);
      kernels_.relu_axpy(sum, factor, dots_ + h * kTile, count);
    }
    for (int k = 0; k < count; ++k) {
      const auto value = static_cast<float>(sum[k]);
      score[k] = value == value ? value : kLeast;  // an order needs numbers
    }
  }

 private:
  const KernelTable& kernels_;
  const IndexSelectArgs& args_;
  const bool packed_;
  Packed tile_;
  uint8_t* codes_ = nullptr;
  uint8_t* scales_ = nullptr;
  float* row_ = nullptr;
  float* dots_ = nullptr;  // [heads][kTile]
};

// One row's choice, with one lane of the scratch.
class RowChoice {
 public:
  RowChoice(const KernelTable& kernels, const IndexSelectArgs& args, int64_t r, int64_t lane)
      : kernels_(kernels),
        args_(args),
        r_(r),
        visible_((I32(args.rows->position)[r] + 1) / args.keys.ratio) {
    WEIR_CHECK(visible_ <= args.entries_max);
    score_ = F32(args.scratch) + lane * 3 * args.entries_max;
    entry_ = reinterpret_cast<int32_t*>(score_ + args.entries_max);
    best_ = score_ + 2 * args.entries_max;
    List();
  }

  int64_t tiles() const { return CeilDiv<int64_t>(count_, kTile); }

  // Scores tile `t` of the row's entries. Tiles do not touch each other.
  void ScoreTile(const Team::Part& part, int64_t t) {
    const int64_t first = t * kTile;
    const int count = static_cast<int>(std::min<int64_t>(kTile, count_ - first));
    KeyTile tile(kernels_, args_, ScratchBehindMultiply(part));
    const int32_t sequence = I32(args_.rows->sequence)[r_];
    for (int k = 0; k < kTile; ++k) {
      // A short tile is filled with its last key: what lies there is read, but never used.
      const int32_t entry = entry_[first + std::min(k, count - 1)];
      tile.Put(k, As<const std::byte>(ref::KvRow(args_.keys, sequence, entry * args_.keys.ratio)));
    }
    tile.Score(part, r_, count, score_ + first);
  }

  void Choose() {
    int32_t* selected = I32(args_.selected) + r_ * args_.select;
    const int64_t kept = KeepBest(score_, count_, args_.select, selected);
    for (int64_t i = 0; i < kept; ++i) selected[i] = entry_[selected[i]];
    std::fill(selected + kept, selected + args_.select, -1);
    if (!args_.candidates_out.empty()) KeepBlocks();
  }

 private:
  void List() {
    if (args_.candidates.empty()) {
      for (; count_ < visible_; ++count_) entry_[count_] = static_cast<int32_t>(count_);
      return;
    }
    const int32_t* block = I32(args_.candidates) + r_ * args_.blocks_kept;
    for (int64_t i = 0; i < args_.blocks_kept && block[i] >= 0; ++i) {
      const int64_t first = int64_t{block[i]} * args_.block_entries;
      const int64_t end = std::min<int64_t>(first + args_.block_entries, visible_);
      for (int64_t g = first; g < end; ++g) entry_[count_++] = static_cast<int32_t>(g);
    }
  }

  void KeepBlocks() {
    const int64_t blocks = CeilDiv<int64_t>(visible_, args_.block_entries);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = b * args_.block_entries;
      const int64_t end = std::min<int64_t>(first + args_.block_entries, visible_);
      best_[b] = *std::max_element(score_ + first, score_ + end);
    }
    if (blocks > 0) best_[blocks - 1] = std::numeric_limits<float>::infinity();
    int32_t* kept = I32(args_.candidates_out) + r_ * args_.blocks_kept;
    const int64_t count = KeepBest(best_, blocks, args_.blocks_kept, kept);
    std::fill(kept + count, kept + args_.blocks_kept, -1);
  }

  const KernelTable& kernels_;
  const IndexSelectArgs& args_;
  const int64_t r_;
  const int64_t visible_;
  int64_t count_ = 0;         // entries to choose from
  float* score_ = nullptr;    // of each
  int32_t* entry_ = nullptr;  // which they are, ascending
  float* best_ = nullptr;     // by block
};

}  // namespace

void RunIndexSelect(const KernelTable& kernels, Team& team, const IndexSelectArgs& args) {
  // A layer that offers candidates looks at every entry itself.
  WEIR_CHECK(args.candidates.empty() || args.candidates_out.empty());
  WEIR_CHECK(KeyTile::Bytes(args) <= kScratchBehindMultiply);
  const int64_t rows = args.rows->count;
  // Many rows: a row each. Few: the tiles of a row are shared out.
  if (rows >= 4 * team.threads()) {
    return team.For(rows, 1, [&](const Team::Part& part, int64_t r) {
      RowChoice choice(kernels, args, r, part.thread);
      for (int64_t t = 0; t < choice.tiles(); ++t) choice.ScoreTile(part, t);
      choice.Choose();
    });
  }
  for (int64_t r = 0; r < rows; ++r) {
    RowChoice choice(kernels, args, r, 0);
    team.For(choice.tiles(), 1,
             [&](const Team::Part& part, int64_t t) { choice.ScoreTile(part, t); });
    choice.Choose();
  }
}

}  // namespace weir::kernels::cpu
