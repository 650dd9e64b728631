// SPDX-License-Identifier: Apache-2.0
//
// What V4.1 keeps of a token: its window row and, at a KV source, a share of a compressed entry with
// its index key (v41-spec 6). Entry g of ratio R is made by the row of its last token, position
// g * R + R - 1, and is rotated at the position of its first, g * R. Other rows, and rows below
// their write floor, leave the block stores alone.
#pragma once

#include "kernels/op/rows.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

// fresh[r] = encode(rope(norm(kv[r]) * weight)), rope on the last `rope` columns. SparseAttention
// reads it; RingWrite keeps it for later steps.
struct WindowRowsArgs {
  const StepRows* rows = nullptr;
  int width = 0;
  int rope = 0;
  float eps = 0;
  RowFormat format = RowFormat::kUnspecified;
  Tensor norm_weight;  // F32 [width]
  Tensor frequency;    // F32 [rope / 2]
  Tensor kv;           // F32 [count, width]
  Tensor fresh;        // out U8 [count, RowBytes(format, width)]
};

// Ratio 2. For rows at odd positions, per channel and over tokens p - 1 and p:
//   latent = norm(sum_t softmax_t(gate) kv) * weight;
// other rows of `latent` are set to 0. kv and gate are F32 products (Linear with keep_f32) and the
// fresh rows of the two carries, which hold token p - 1 when it belongs to an earlier step. There is
// no op for ratio 1: its latent is RmsNorm of Linear.
struct CompressPairArgs {
  const StepRows* rows = nullptr;
  int width = 0;
  float eps = 0;
  Tensor kv;    // F32 [count, width]
  Tensor gate;  // F32 [count, width]
  RingKv kv_carry;
  RingKv gate_carry;
  Tensor norm_weight;  // F32 [width]
  Tensor latent;       // out F32 [count, width]
};

// store entry = encode(rope(norm(x) * weight)) for rows that end an entry. Without a norm weight x
// is taken as it is: the main row is made of the latent, the index key of wk latent and k_norm.
struct EntryWriteArgs {
  const StepRows* rows = nullptr;
  int width = 0;
  int rope = 0;
  float eps = 0;
  Tensor norm_weight;  // F32 [width], or empty
  Tensor frequency;    // F32 [rope / 2]
  Tensor x;            // F32 [count, width]
  PagedKv store;       // its ratio says which rows end an entry
};

// x = decode(encode(x)) row by row, in place: the index query's quantisation. kF32 changes nothing.
struct RoundTripArgs {
  int64_t rows = 0;
  int width = 0;
  RowFormat format = RowFormat::kUnspecified;
  Tensor x;  // F32 [rows, width]
};

}  // namespace weir::kernels
