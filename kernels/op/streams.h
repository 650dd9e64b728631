// SPDX-License-Identifier: Apache-2.0
//
// Residual streams and their mixing, mHC with a lagged `pre` (v41-spec 5). A row carries `streams`
// vectors of `width`. A site (attention or feed-forward) with input X:
//   (pre, post, comb) = StreamMix(X)                       of this site
//   x = Collapse(X, pre of the site BEFORE);  y = sublayer(norm(x));  X = Expand(y, X, post, comb)
// At the start pre = (1, 0, 0, ...); after the last site X is collapsed with that site's own pre.
// Tolerance of a backend against `ref`: 1e-6 of mixing weights, 1e-6 relative of streams.
#pragma once

#include "kernels/op/rows.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

inline constexpr int kStreamsMax = 8;

// x[r][k] = table[token[r]] for every stream k, and pre[r] = (1, 0, 0, ...).
struct EmbedStreamsArgs {
  const StepRows* rows = nullptr;
  int streams = 0;
  Tensor table;  // F32 or BF16 [vocab, width]
  Tensor x;      // F32 out [count, streams, width]
  Tensor pre;    // F32 out [count, streams]
};

// With n streams and v the row's n * width values: m = (fn v) / sqrt(mean(v^2) + norm_eps), then
//   pre  = sigmoid(m[0:n] scale[0] + base[0:n]) + eps
//   post = 2 sigmoid(m[n:2n] scale[1] + base[n:2n])
//   C    = softmax over k of (m[2n:] scale[2] + base[2n:]) as [j][k], + eps; C /= column sums + eps;
//          then iterations - 1 times C /= row sums + eps, C /= column sums + eps
struct StreamMixArgs {
  int rows = 0;
  int streams = 0;
  int iterations = 0;
  float eps = 0;
  float norm_eps = 0;
  Tensor x;      // F32 [rows, streams, width]
  Matrix fn;     // [2 n + n * n, n * width]
  Tensor scale;  // F32 [3]
  Tensor base;   // F32 [2 n + n * n]
  Tensor pre;    // F32 out [rows, n]
  Tensor post;   // F32 out [rows, n]
  Tensor comb;   // F32 out [rows, n, n], [source j][destination k]
};

// out[r] = sum over k of pre[r][k] x[r][k].
struct CollapseArgs {
  int rows = 0;
  int streams = 0;
  int width = 0;
  Tensor x;    // F32 [rows, streams, width]
  Tensor pre;  // F32 [rows, streams]
  Tensor out;  // F32 [rows, width]
};

// x[r][k] = post[r][k] y[r] + sum over j of comb[r][j][k] x[r][j], in place.
struct ExpandArgs {
  int rows = 0;
  int streams = 0;
  int width = 0;
  Tensor y;     // F32 [rows, width]
  Tensor post;  // F32 [rows, streams]
  Tensor comb;  // F32 [rows, streams, streams]
  Tensor x;     // F32 [rows, streams, width]
};

}  // namespace weir::kernels
