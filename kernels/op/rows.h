// SPDX-License-Identifier: Apache-2.0
//
// How a step's rows and paged KV reach a kernel. A step has `count` rows; each is one token at one
// position of one sequence. All arrays are on the device; the host knows only their extents. Every
// row stands alone: the order of rows, and which rows share a step, must not change any result.
#pragma once

#include <cstdint>

#include "kernels/op/tensor.h"

namespace weir::kernels {

struct StepRows {
  int count = 0;
  Tensor token;         // I32 [count]
  Tensor position;      // I32 [count], in the sequence
  Tensor sequence;      // I32 [count], row of the block table
  Tensor write_floor;   // I32 [count]: a row below its floor leaves the KV store alone
  Tensor visible_from;  // I32 [count]: window rows below this position do not exist
};

// One layer's part of a block store. A sequence's position p lies in page
// table[sequence][p / page_tokens], at
//   base + page * page_bytes + layer_offset + (p % page_tokens) * row_bytes.
struct PagedKv {
  DeviceAddress base = 0;
  int64_t page_bytes = 0;
  int64_t layer_offset = 0;
  int64_t row_bytes = 0;
  int32_t page_tokens = 0;
  DType dtype = DType::kUnspecified;
  Tensor table;              // I32 [sequences, table_stride], page ids
  int32_t table_stride = 0;  // pages a row of the table has room for
};

}  // namespace weir::kernels
