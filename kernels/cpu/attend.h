// SPDX-License-Identifier: Apache-2.0
//
// What both forms of attention share: a thread's scratch laid out for KernelTable::attend, and how
// many heads go together. On the pool's threads; nothing here fails.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/pool.h"

namespace weir::kernels::cpu {

inline constexpr int64_t kPad = 16;  // widths are padded to a register

// A thread's scratch as attention uses it.
class AttendScratch {
 public:
  AttendScratch(std::byte* at, int64_t width, int64_t values)
      : width_(AlignUp(width, kPad)), values_(AlignUp(values, kPad)) {
    auto* next = reinterpret_cast<float*>(at);
    const auto take = [&next](int64_t count) {
      float* const taken = next;
      next += AlignUp<int64_t>(count, 16);
      return taken;
    };
    q = take(kAttendHeads * width_);
    kv = take(kAttendTile * width_);
    acc = take(kAttendHeads * values_);
    scores = take(kAttendHeads * kAttendTile);
    top = take(kAttendHeads);
    total = take(kAttendHeads);
    WEIR_CHECK(reinterpret_cast<std::byte*>(next) <= at + kThreadScratch);
  }

  // Fresh sums for `heads` heads; q and kv rows are as wide as the padded key.
  AttendTile Begin(int heads, float scale) {
    std::fill_n(acc, heads * values_, 0.0f);
    std::fill_n(top, heads, -1e30f);
    std::fill_n(total, heads, 0.0f);
    AttendTile tile;
    tile.heads = heads;
    tile.width = static_cast<int>(width_);
    tile.values = static_cast<int>(values_);
    tile.q_stride = width_;
    tile.kv_stride = width_;
    tile.acc_stride = values_;
    tile.scale = scale;
    tile.q = q;
    tile.kv = kv;
    tile.scores = scores;
    tile.top = top;
    tile.total = total;
    tile.acc = acc;
    return tile;
  }
  float* QueryRow(int64_t head) { return q + head * width_; }
  float* KeyRow(int64_t row) { return kv + row * width_; }
  // Zeroes what lies behind `width` values of a row.
  void Pad(float* row, int64_t width) { std::fill(row + width, row + width_, 0.0f); }

  float* q = nullptr;
  float* kv = nullptr;
  float* acc = nullptr;
  float* scores = nullptr;
  float* top = nullptr;
  float* total = nullptr;

 private:
  const int64_t width_;
  const int64_t values_;
};

// Heads that share an expanded tile: all that fit, but no fewer tasks than keep the threads busy.
inline int HeadBlock(int heads, int64_t rows, int threads) {
  int block = std::min(heads, kAttendHeads);
  while (block > 4 && rows * CeilDiv(heads, block) < 2 * threads) block = CeilDiv(block, 2);
  return block;
}

}  // namespace weir::kernels::cpu
