// SPDX-License-Identifier: Apache-2.0
//
// Multi-head latent attention in its absorbed form, over pages, for prefill and decode alike: one
// form, so that a position's bits do not depend on which of the two computed it (ruling 6).
//   score(t) = (q_latent . c_t + q_rope . k_t) * scale,  t in [0, position]
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
};

}  // namespace weir::kernels
