// SPDX-License-Identifier: Apache-2.0
//
// Tensor maps as hosts make them: of a matrix with rows at a stride, or of a paged store. Nothing
// is owned; a map is a value that a kernel takes by const parameter.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {

// Boxes of `box_rows` x 64 BF16 values of a paged store: coordinates are column, row in the page,
// and page. How many pages there are is the table's affair, so the map has no end.
inline dev::TensorMap PagedBf16Map(const PagedView& kv, int columns, int box_rows) {
  constexpr uint64_t kEndless = uint64_t{1} << 31;
  return dev::MakeTensorMap<3>(
      kv.base, /*element_bytes=*/2, dev::Swizzle::k128,
      {static_cast<uint64_t>(columns), static_cast<uint64_t>(kv.page_tokens), kEndless},
      {2, static_cast<uint64_t>(kv.row_bytes), static_cast<uint64_t>(kv.page_bytes)},
      {64, static_cast<uint32_t>(box_rows), 1});
}

}  // namespace weir::kernels::cuda
