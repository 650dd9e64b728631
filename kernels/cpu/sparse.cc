// SPDX-License-Identifier: Apache-2.0
//
// Attention over a row's window and its selected entries. The keys come in tiles in the order that
// the op header gives, each expanded to F32 once for all heads of the block: a row's arithmetic
// depends on its own list of keys alone.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/run.h"
#include "kernels/cpu/store_rows.h"
#include "kernels/ref/access.h"

namespace weir::kernels::cpu {
namespace {

using ref::As;
using ref::F32;
using ref::I32;

// What row r attends to: positions of its window, then entries.
class RowKeys {
 public:
  RowKeys(const SparseAttentionArgs& args, int64_t r)
      : args_(args), r_(r), sequence_(I32(args.rows->sequence)[r]) {
    const int32_t position = I32(args.rows->position)[r];
    first_ = std::max({position - args.window + 1, 0, I32(args.rows->visible_from)[r]});
    recent_ = std::max(position - first_ + 1, 0);
    if (args.select > 0) entry_ = I32(args.selected) + r * args.select;
    while (entries_ < args.select && entry_[entries_] >= 0) ++entries_;
  }

  int count() const { return recent_ + entries_; }

  void Expand(const KernelTable& kernels, int index, float* to) const {
    if (index < recent_) {
      const std::byte* row =
          ref::RecentRow(*args_.rows, args_.fresh, args_.ring, r_, first_ + index);
      return DecodeStoreRow(kernels, args_.ring.format, row, args_.width, to);
    }
    const DeviceAddress at =
        ref::KvRow(args_.entries, sequence_, entry_[index - recent_] * args_.entries.ratio);
    DecodeStoreRow(kernels, args_.entries.format, As<const std::byte>(at), args_.width, to);
  }

 private:
  const SparseAttentionArgs& args_;
  const int64_t r_;
  const int32_t sequence_;
  const int32_t* entry_ = nullptr;
  int32_t first_ = 0;
  int recent_ = 0;
  int entries_ = 0;
};

}  // namespace

void RunSparseAttention(const KernelTable& kernels, Team& team, const SparseAttentionArgs& args) {
  const int64_t width = args.width;
  const int block = HeadBlock(args.heads, args.rows->count, team.threads());
  const int64_t blocks = CeilDiv(args.heads, block);
  team.For(args.rows->count * blocks, 1, [&](const Team::Part& part, int64_t index) {
    const int64_t r = index / blocks;
    const int64_t first = index % blocks * block;
    const int heads = static_cast<int>(std::min<int64_t>(block, args.heads - first));
    AttendScratch scratch(part.scratch, width, width);
    AttendTile tile = scratch.Begin(heads, args.scale);
    for (int64_t h = 0; h < heads; ++h) {
      float* q = scratch.QueryRow(h);
      std::copy_n(F32(args.q) + (r * args.heads + first + h) * width, width, q);
      scratch.Pad(q, width);
    }
    const RowKeys keys(args, r);
    for (int from = 0; from < keys.count(); from += kAttendTile) {
      tile.count = std::min(kAttendTile, keys.count() - from);
      for (int i = 0; i < tile.count; ++i) {
        keys.Expand(kernels, from + i, scratch.KeyRow(i));
        scratch.Pad(scratch.KeyRow(i), width);
      }
      kernels.attend(tile);
    }
    for (int64_t h = 0; h < heads; ++h) {
      float* out = F32(args.out) + (r * args.heads + first + h) * width;
      const float* sum = tile.acc + h * tile.acc_stride;
      const double sink = std::exp(double{F32(args.sink)[first + h]} - tile.top[h]);
      const double inverse = 1.0 / (tile.total[h] + sink);
      for (int64_t j = 0; j < width; ++j) out[j] = static_cast<float>(sum[j] * inverse);
    }
  });
}

}  // namespace weir::kernels::cpu
