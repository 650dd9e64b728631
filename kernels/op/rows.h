// SPDX-License-Identifier: Apache-2.0
//
// How a step's rows and a sequence's stores reach a kernel. A step has `count` rows; each is one
// token at one position of one sequence. All arrays are on the device; the host knows only their
// extents. Every row stands alone: the order of rows, and which rows share a step, must not change
// any result.
#pragma once

#include <cstdint>

#include "kernels/op/formats.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

// Rows of one sequence stand together, in order of position and without a gap, and a sequence comes
// once in a step.
struct StepRows {
  int count = 0;
  Tensor token;         // I32 [count]
  Tensor position;      // I32 [count], in the sequence
  Tensor sequence;      // I32 [count], row of the block table
  Tensor write_floor;   // I32 [count]: a row below its floor leaves the block stores alone
  Tensor visible_from;  // I32 [count]: window rows below this position do not exist
  // I32 [count]: position j of row r's sequence, fresh_from[r] <= j <= position[r], is row
  // r - (position[r] - j) of this very step. A ring may hold something older at that place.
  Tensor fresh_from;
  Tensor image;  // I32 [count]: not 0 for tokens of an image span; empty when there are none
};

// One layer's part of a block store, one row (an entry) for `ratio` tokens. A sequence's position p
// lies in page table[sequence][p / page_tokens], at
//   base + page * page_bytes + layer_offset + p % page_tokens / ratio * row_bytes.
struct PagedKv {
  DeviceAddress base = 0;
  int64_t page_bytes = 0;
  int64_t layer_offset = 0;
  int64_t row_bytes = 0;
  int32_t page_tokens = 0;
  int32_t ratio = 1;
  RowFormat format = RowFormat::kUnspecified;
  Tensor table;              // I32 [sequences, table_stride], page ids
  int32_t table_stride = 0;  // pages a row of the table has room for
};

// One layer's ring of recent rows in a sequence's state page (windows, and what a step leaves to
// the next). Position p of a sequence lies at
//   base + state[sequence] * state_bytes + layer_offset + p % ring_rows * row_bytes.
// A step's own rows may be more than the ring holds: kernels read them from the step (fresh_from)
// and write the ring afterwards, the latest ring_rows rows of each sequence.
struct RingKv {
  DeviceAddress base = 0;
  int64_t state_bytes = 0;
  int64_t layer_offset = 0;
  int64_t row_bytes = 0;
  int32_t ring_rows = 0;
  RowFormat format = RowFormat::kUnspecified;
  Tensor state;  // I32 [sequences], state page of each row of the block table
};

// Keeps a step's rows for later steps: copies row r of `fresh` to its place in the ring unless a
// later row of the same sequence takes that place. The write floor plays no part: a ring serves one
// sequence alone.
struct RingWriteArgs {
  const StepRows* rows = nullptr;
  Tensor fresh;  // [count] rows of ring.row_bytes
  RingKv ring;
};

}  // namespace weir::kernels
