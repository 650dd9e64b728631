// SPDX-License-Identifier: Apache-2.0
//
// Which compressed entries a row attends to (v41-spec 6). Row at position p sees entries
// g < (p + 1) / ratio. Their scores, in F32:
//   score(g) = sum_h (scale * weight[h]) max(0, q[h] . key[g])
// Lists stay on the device: entry numbers (or block numbers) ascending, then -1 to the end.
//
// Two levels. A source with `candidates_out` keeps the `blocks_kept` best of its blocks of
// `block_entries` neighbouring entries, a block being as good as its best visible entry and the one
// with the newest visible entry the best of all. A later layer with `candidates` looks at entries of
// those blocks only. Ties: the lower entry, the lower block.
#pragma once

#include "kernels/op/rows.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

struct IndexSelectArgs {
  const StepRows* rows = nullptr;
  int heads = 0;
  int width = 0;
  int select = 0;  // at most so many entries per row
  float scale = 0;
  Tensor q;       // F32 [count, heads, width], rotated and after RoundTrip
  Tensor weight;  // F32 [count, heads], the projection's output
  PagedKv keys;
  int block_entries = 0;  // with candidates in or out
  int blocks_kept = 0;
  Tensor candidates;      // I32 [count, blocks_kept] or empty: look everywhere
  Tensor candidates_out;  // out I32 [count, blocks_kept] or empty
  int64_t entries_max = 0;
  Tensor scratch;   // F32 [lanes, 3 * entries_max]
  Tensor selected;  // out I32 [count, select]
};

}  // namespace weir::kernels
