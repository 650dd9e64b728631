// SPDX-License-Identifier: Apache-2.0
//
// Row-wise operations without a matrix. Each names its tensors; extents come from `rows` and the
// shapes given. Outputs may be the input where the comment says "in place".
#pragma once

#include "kernels/op/rows.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

// out[r] = table[token[r]]; table F32 or BF16 [vocab, width].
struct EmbedArgs {
  const StepRows* rows = nullptr;
  Tensor table;
  Tensor out;  // F32 [count, width]
};

// out = x * rsqrt(mean(x^2) + eps) * weight over the first `width` columns of each row.
struct RmsNormArgs {
  int rows = 0;
  int width = 0;
  float eps = 0;
  Tensor x;  // F32, rows `x_stride` apart
  int x_stride = 0;
  Tensor weight;  // F32 [width]
  Tensor out;     // F32 [rows, width]; may be x when the strides agree
};

// out = (x - mean(x)) * rsqrt(variance(x) + eps) * weight + bias, the variance over all of `width`.
struct LayerNormArgs {
  int rows = 0;
  int width = 0;
  float eps = 0;
  Tensor x;       // F32 [rows, width]
  Tensor weight;  // F32 [width]
  Tensor bias;    // F32 [width]
  Tensor out;     // F32 [rows, width]; may be x
};

// sum += x, in place.
struct AddArgs {
  int64_t elements = 0;
  Tensor sum;
  Tensor x;
};

// h = silu(gate) * up, in place on gate. A limit above 0 clamps first: the gate from above only, up
// on both sides.
struct SwigluArgs {
  int64_t elements = 0;
  Tensor gate;
  Tensor up;
  float limit = 0;
};

// out[i] = x[index[i]]: picks the rows whose logits are wanted, or a tail. Any 4-byte elements.
struct GatherRowsArgs {
  int count = 0;
  int width = 0;
  Tensor x;      // F32 or I32 [*, width]
  Tensor index;  // I32 [count]
  Tensor out;    // as x [count, width]
};

}  // namespace weir::kernels
