// SPDX-License-Identifier: Apache-2.0
//
// Attention over a sequence's stores, for prefill and decode alike: one form each, so that a
// position's bits do not depend on which of the two computed it (ruling 6).
//
// Multi-head latent attention in its absorbed form:
//   score(t) = (q_latent . c_t + q_rope . k_t) * scale,  t in [0, position], or those selected
//   z = sum_t softmax(score)_t c_t
// A block store has no window: visible_from of the rows plays no part.
#pragma once

#include "kernels/op/rows.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

struct MlaAttentionArgs {
  const StepRows* rows = nullptr;
  int heads = 0;
  int latent = 0;
  int nope = 0;  // width before the rotated part in each head of q
  int rope = 0;
  float scale = 0;
  Tensor q_latent;  // F32 [count, heads, latent]
  Tensor q;         // F32 [count, heads, nope + rope]; the rotated part is read
  PagedKv kv;
  Tensor scores;  // scratch, 8 bytes for each position one sequence can have
  Tensor out;     // F32 [count, heads, latent]
  int select = 0;   // 0: every position
  Tensor selected;  // I32 [count, select] positions, see IndexSelect with ratio 1
};

// One softmax over the row's window and its selected entries; a row is key and value of every head:
//   window: positions max(visible_from, p - window + 1) ... p, then entries as `selected` lists them
//   s_i = q . row_i * scale;  out = sum_i exp(s_i) row_i / (sum_i exp(s_i) + exp(sink))
// A token may count twice, in the window and in an entry. Selected entries are visible ones.
struct SparseAttentionArgs {
  const StepRows* rows = nullptr;
  int heads = 0;
  int width = 0;
  int window = 0;
  int select = 0;  // 0: the window alone
  float scale = 0;
  Tensor q;        // F32 [count, heads, width]
  Tensor fresh;    // window rows of the step, see WindowRows
  RingKv ring;  // window rows before the step; its format is that of `fresh`
  PagedKv entries;
  Tensor selected;  // I32 [count, select], see IndexSelect
  Tensor sink;      // F32 [heads]
  Tensor scratch;   // F32 [lanes, window + select, width]
  Tensor out;       // F32 [count, heads, width]
};

}  // namespace weir::kernels
