// SPDX-License-Identifier: Apache-2.0
//
// Engram, the n-gram memory (v41-spec 8). A step first turns tokens into compressed ids, then, for
// every Engram layer, ids into table rows: both need token ids alone and may run long before the
// layer. The layer gathers its rows, multiplies them by its wkv (Linear) and gates the value into
// the streams. A row of an image span is dead (-1): nothing looks through it and it gains nothing.
#pragma once

#include <cstdint>

#include "kernels/op/rows.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

inline constexpr int kNgramMax = 8;

// id[r] = map[token[r]], or -1 for a row of an image span.
struct EngramIdsArgs {
  const StepRows* rows = nullptr;
  Tensor map;  // I32 [vocab]
  Tensor id;   // out I32 [count]; the fresh rows of the history ring
};

// Columns are order 2 head 0, 1, ..., order 3, ...; `offset` is the running sum of the primes before.
// With t_k the id k positions back (pad from the first k on that lies before the sequence or is
// dead): h_1 = t_0 m_0, h_n = h_(n-1) xor t_(n-1) m_(n-1);
//   row[r][(n - 2) * heads + j] = h_n mod prime + offset of that column.
struct EngramRowsArgs {
  const StepRows* rows = nullptr;
  int ngram = 0;
  int heads = 0;
  int32_t pad = 0;    // compressed id of the pad token
  Tensor id;          // I32 [count]
  RingKv history;  // ids of positions before the step, one I32 each; at least ngram - 1 rows
  Tensor multiplier;  // I64 [ngram]; products with an id stay below 2^63
  Tensor prime;       // I32 [(ngram - 1) * heads]
  Tensor offset;      // I32 [(ngram - 1) * heads]
  Tensor row;         // out I32 [count, (ngram - 1) * heads]
};

// out[r] = the rows of the table one after the other.
struct EngramGatherArgs {
  int rows = 0;
  int columns = 0;  // table rows per row
  Tensor row;       // I32 [rows, columns]
  Table table;
  Tensor out;  // F32 [rows, columns * table.cols]
};

// dot_k = sum_d x_k q_weight_k k_weight_k key_k / (rms(x_k) rms(key_k)) / sqrt(width), with
// rms(v) = sqrt(mean(v^2) + eps); x_k += sigmoid(sign(dot_k) sqrt(max(|dot_k|, 1e-6))) value.
// The sign of 0 is the sign bit's. Rows of an image span stay as they are.
struct EngramGateArgs {
  const StepRows* rows = nullptr;
  int streams = 0;
  int width = 0;
  float eps = 0;
  Tensor kv;        // F32 [count, (streams + 1) * width]: a key per stream, then the value
  Tensor q_weight;  // F32 [streams, width]
  Tensor k_weight;  // F32 [streams, width]
  Tensor x;         // F32 [count, streams, width], in place
};

}  // namespace weir::kernels
