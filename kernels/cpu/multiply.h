// SPDX-License-Identifier: Apache-2.0
//
// Rows times a packed weight: pointers, scratch and the split over threads around
// KernelTable::multiply_tile. Used by the operations that read a Matrix, on the pool's threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/pool.h"
#include "kernels/op/tensor.h"

namespace weir::kernels::cpu {

inline const PackedMatrix& PackedOf(const Matrix& matrix) {
  return *reinterpret_cast<const PackedMatrix*>(matrix.address);
}

// Lies at the start of a thread's scratch.
struct alignas(64) MultiplyScratch {
  const float* x[kRowsMax];
  float* out[kRowsMax];
  alignas(64) float floats[kMultiplyScratch];
};
static_assert(sizeof(MultiplyScratch) <= kThreadScratch / 2);

// What is left of a thread's scratch for the operation itself.
inline std::byte* ScratchBehindMultiply(const Team::Part& part) {
  return part.scratch + sizeof(MultiplyScratch);
}
inline constexpr size_t kScratchBehindMultiply = kThreadScratch - sizeof(MultiplyScratch);

// Outputs of tile `tile`, of which there are `rows` in all tiles.
inline int WidthOfTile(int64_t rows, int64_t tile) {
  return static_cast<int>(std::min<int64_t>(kTile, rows - tile * kTile));
}

// For r < count: out(r)[0..wide) = tile times x(r). `x` and `out` map a row to its first element.
template <class X, class Out>
void MultiplyTileRows(const KernelTable& kernels, const Team::Part& part, const Packed& w,
                      int64_t tile, int64_t count, int wide, const X& x, const Out& out) {
  auto* scratch = reinterpret_cast<MultiplyScratch*>(part.scratch);
  for (int64_t first = 0; first < count; first += kRowsMax) {
    const int rows = static_cast<int>(std::min<int64_t>(kRowsMax, count - first));
    for (int r = 0; r < rows; ++r) {
      scratch->x[r] = x(first + r);
      scratch->out[r] = out(first + r);
    }
    kernels.multiply_tile(w, tile, rows, scratch->x, scratch->out, wide, scratch->floats);
  }
}

// How many tiles one thread should take at a time for `rows` rows: some microseconds of work, so
// that drawing them costs little and the threads still end together.
inline int64_t TileGrain(const Packed& w, int64_t rows) {
  constexpr int64_t kNanoseconds = 4000;
  const int64_t read = (w.tile_bytes + w.scale_tile_bytes) / 24;
  const int64_t compute = rows * w.cols * kTile / 80;
  return std::max<int64_t>(1, kNanoseconds / std::max<int64_t>(1, read + compute));
}

}  // namespace weir::kernels::cpu
