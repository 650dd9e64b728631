// SPDX-License-Identifier: Apache-2.0
//
// Linear maps. A weight is [outputs, inputs] and y = W x. Tolerance of a backend against `ref`:
// max abs 1e-4 of the output's standard deviation in fp32 numerics.
#pragma once

#include "kernels/op/tensor.h"

namespace weir::kernels {

struct LinearArgs {
  int rows = 0;
  Tensor x;  // F32 [rows, weight.cols]
  Matrix weight;
  Tensor out;  // F32 [rows, weight.rows]
  // The product stays F32 where `vendor` numerics would round it to BF16 (head, ratio-2 compressor).
  bool keep_f32 = false;
};

// Block-diagonal: group g of x meets rows g * rank ... of the weight, rank = weight.rows / groups.
struct GroupedLinearArgs {
  int rows = 0;
  int groups = 0;
  Tensor x;       // F32 [rows, groups, weight.cols]
  Matrix weight;  // [groups * rank, inputs of one group]
  Tensor out;     // F32 [rows, groups, rank]
};

// The two halves of MLA's kv_b_proj, used per head in the absorbed form (model-spec 2.2). The
// weight has, for each head, `nope` rows of W_UK and then `value` rows of W_UV, over `latent`
// inputs.
struct MlaAbsorbArgs {
  int rows = 0;
  int heads = 0;
  int nope = 0;
  int rope = 0;
  int value = 0;
  int latent = 0;
  Matrix kv_b;
  Tensor in;   // query: F32 [rows, heads, nope + rope]; value: F32 [rows, heads, latent]
  Tensor out;  // query: F32 [rows, heads, latent] = W_UK^T q_nope; value: F32 [rows, heads, value]
};

}  // namespace weir::kernels
