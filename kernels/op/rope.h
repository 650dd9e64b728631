// SPDX-License-Identifier: Apache-2.0
//
// Rotary embedding of adjacent pairs (2i, 2i+1) and the write of a finished KV row. The angle is
// the F32 product position * frequency, as released models were trained with; frequencies (YaRN
// included) are made once by YarnFrequencies. KV values are the latent after its norm, then the
// rotated key.
#pragma once

#include <optional>
#include <vector>

#include "kernels/op/rows.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

struct Yarn {
  double factor = 1;
  double original_positions = 0;
  double beta_fast = 32;
  double beta_slow = 1;
};

// Inverse wavelengths of the width / 2 pairs (model-spec 1.2). Pure host code.
std::vector<float> RopeFrequencies(int width, double theta, const std::optional<Yarn>& yarn);

// Rotates the last `rope` columns of every head of q, in place; `inverse` by the opposite angle.
struct RopeQueryArgs {
  const StepRows* rows = nullptr;
  int heads = 0;
  int nope = 0;
  int rope = 0;
  Tensor frequency;  // F32 [rope / 2]
  Tensor q;          // F32 [count, heads, nope + rope]
  bool inverse = false;
};

// What V3.2's index does to a query or key (model-spec 3.1), in place on every head: rotates its
// FIRST `rope` columns as pairs (i, i + rope / 2), then takes the orthonormal Walsh-Hadamard
// transform of all `width` columns in Sylvester's order. `width` is a power of two.
struct IndexRotateArgs {
  const StepRows* rows = nullptr;
  int heads = 0;
  int width = 0;
  int rope = 0;
  Tensor frequency;  // F32 [rope / 2]
  Tensor x;          // F32 [count, heads, width]
};

// Norms the latent, rotates the key part and writes both to the row's place in the store, unless
// the row lies below its write floor.
struct MlaKvWriteArgs {
  const StepRows* rows = nullptr;
  int latent = 0;
  int rope = 0;
  float eps = 0;
  Tensor norm_weight;  // F32 [latent]
  Tensor frequency;    // F32 [rope / 2]
  Tensor kv_a;         // F32 [count, latent + rope]
  PagedKv kv;
};

}  // namespace weir::kernels
