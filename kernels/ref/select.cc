// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {
namespace {

constexpr int kWidthMax = 1024;
constexpr int kHeadsMax = 1024;
constexpr float kLeast = -std::numeric_limits<float>::infinity();

// One row's part of the scratch.
struct Scratch {
  float* score;    // by entry
  int32_t* order;  // entries or blocks to choose from
  float* best;     // by block
};

// Leaves the `keep` best of `count` numbers in `order`, ascending, and returns how many there are.
int64_t KeepBest(const float* score, int32_t* order, int64_t count, int64_t keep) {
  if (count > keep) {
    std::nth_element(order, order + keep, order + count, [score](int32_t a, int32_t b) {
      return score[a] != score[b] ? score[a] > score[b] : a < b;
    });
    count = keep;
  }
  std::sort(order, order + count);
  return count;
}

void PutList(const int32_t* from, int64_t count, int32_t* to, int64_t room) {
  std::copy_n(from, count, to);
  std::fill(to + count, to + room, -1);
}

class RowSelection {
 public:
  RowSelection(const IndexSelectArgs& args, const Rounding& round, int64_t r)
      : args_(args),
        round_(round),
        r_(r),
        visible_((I32(args.rows->position)[r] + 1) / args.keys.ratio) {
    WEIR_CHECK(visible_ <= args.entries_max);
    float* base = F32(args.scratch);
    scratch_ = {base, reinterpret_cast<int32_t*>(base + args.entries_max),
                base + 2 * args.entries_max};
    for (int h = 0; h < args.heads; ++h) {
      weight_[h] = round_(static_cast<double>(F32(args.weight)[r * args.heads + h]) * args.scale);
    }
  }

  void Run() {
    int64_t count = 0;
    if (args_.candidates.empty()) {
      for (int64_t g = 0; g < visible_; ++g) Offer(g, &count);
    } else {
      const int32_t* block = I32(args_.candidates) + r_ * args_.blocks_kept;
      for (int64_t i = 0; i < args_.blocks_kept && block[i] >= 0; ++i) {
        const int64_t first = int64_t{block[i]} * args_.block_entries;
        const int64_t end = std::min<int64_t>(first + args_.block_entries, visible_);
        for (int64_t g = first; g < end; ++g) Offer(g, &count);
      }
    }
    count = KeepBest(scratch_.score, scratch_.order, count, args_.select);
    PutList(scratch_.order, count, I32(args_.selected) + r_ * args_.select, args_.select);
    if (!args_.candidates_out.empty()) KeepBlocks();
  }

 private:
  void Offer(int64_t g, int64_t* count) {
    scratch_.score[g] = ScoreOf(g);
    scratch_.order[(*count)++] = static_cast<int32_t>(g);
  }

  float ScoreOf(int64_t g) const {
    float key[kWidthMax];
    const auto position = static_cast<int32_t>(g * args_.keys.ratio);
    const DeviceAddress at = KvRow(args_.keys, I32(args_.rows->sequence)[r_], position);
    DecodeRow(args_.keys.format, As<const std::byte>(at), args_.width, key);
    double sum = 0;
    for (int64_t h = 0; h < args_.heads; ++h) {
      const float* q = F32(args_.q) + (r_ * args_.heads + h) * args_.width;
      const double dot = round_.on() ? round_(Dot(q, key, args_.width)) : Dot(q, key, args_.width);
      const double share = std::max(dot, 0.0) * weight_[h];
      sum += round_.on() ? round_(share) : share;
    }
    const float score = round_(sum);
    return score == score ? score : kLeast;  // not a number: an order needs numbers
  }

  void KeepBlocks() {
    const int64_t blocks = (visible_ + args_.block_entries - 1) / args_.block_entries;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = b * args_.block_entries;
      const int64_t end = std::min<int64_t>(first + args_.block_entries, visible_);
      scratch_.best[b] = *std::max_element(scratch_.score + first, scratch_.score + end);
      scratch_.order[b] = static_cast<int32_t>(b);
    }
    if (blocks > 0) scratch_.best[blocks - 1] = std::numeric_limits<float>::infinity();
    const int64_t kept = KeepBest(scratch_.best, scratch_.order, blocks, args_.blocks_kept);
    PutList(scratch_.order, kept, I32(args_.candidates_out) + r_ * args_.blocks_kept,
            args_.blocks_kept);
  }

  const IndexSelectArgs& args_;
  const Rounding& round_;
  const int64_t r_;
  const int64_t visible_;
  Scratch scratch_{};
  float weight_[kHeadsMax];
};

}  // namespace

void RefOps::IndexSelect(Stream& stream, const IndexSelectArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.width <= kWidthMax && args.heads <= kHeadsMax);
  // A layer that offers candidates looks at every entry itself.
  WEIR_CHECK(args.candidates.empty() || args.candidates_out.empty());
  for (int64_t r = 0; r < args.rows->count; ++r) RowSelection(args, round_, r).Run();
}

}  // namespace weir::kernels::ref
