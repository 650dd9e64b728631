// SPDX-License-Identifier: Apache-2.0
//
// Mixture of experts: route, group by physical slot, run the experts, sum. Which experts a row
// takes and how many rows an expert gets stay on the device. An `entry` is row * choices + choice.
#pragma once

#include <span>

#include "kernels/op/tensor.h"

namespace weir::kernels {

enum class RouteScore : uint8_t {
  kSigmoid = 0,       // V3
  kSqrtSoftplus = 1,  // V4: sqrt(ln(1 + e^x))
  kSoftmax = 2,       // V2, over all experts; groups are ranked by their best alone
};

// Selection by score + bias, limited to `groups_kept` of `groups` ranked by the sum of their two
// best biased scores (see RouteScore); weights from the unbiased scores: s * scale / (their sum +
// 1e-20), undivided without `normalise`. Ties take the lower expert. The gate's product is F32 in
// all numerics.
struct MoeRouteArgs {
  int rows = 0;
  int experts = 0;
  int groups = 1;
  int groups_kept = 1;
  int choices = 0;
  bool normalise = true;
  float scale = 1;
  Tensor x;  // F32 [rows, gate.cols]
  Matrix gate;
  Tensor bias;    // F32 [experts], or empty
  Tensor expert;  // out I32 [rows, choices], best first
  Tensor weight;  // out F32 [rows, choices]
  RouteScore score = RouteScore::kSigmoid;
  Tensor image;       // I32 [rows]: rows that are not 0 use image_bias; may be empty
  Tensor image_bias;  // F32 [experts]
};

// Groups entries by physical slot, in ascending entry order within each.
struct MoePermuteArgs {
  int rows = 0;
  int choices = 0;
  int slots = 0;
  Tensor expert;      // I32 [rows, choices], logical
  Tensor slot_of;     // I32 [experts]: logical expert -> physical slot of this layer
  Tensor entry;       // out I32 [rows * choices]
  Tensor slot_begin;  // out I32 [slots + 1]
};

struct ExpertWeights {
  Matrix gate;
  Matrix up;
  Matrix down;
};

// out[entry] = down(weight[entry] * silu(min(gate x, limit)) * clamp(up x, -limit, limit)) with the
// matrices of the slot that entry belongs to; see Swiglu for the limit. V4 weights here, V3 in
// MoeCombine.
struct ExpertFfnArgs {
  int entries_max = 0;
  int choices = 0;
  std::span<const ExpertWeights> slots;
  Tensor x;           // F32 [rows, width]
  Tensor entry;       // I32 [entries_max]
  Tensor slot_begin;  // I32 [slots + 1]
  Tensor hidden;      // F32 scratch [2, entries_max, ffn width]
  Tensor out;         // F32 [entries_max, width], indexed by entry
  float limit = 0;    // 0: none
  Tensor weight;      // F32, indexed by entry; empty: 1
};

// sum[r] += sum over the row's choices, in ascending logical expert, of weight * out[entry]; an
// empty weight is 1.
struct MoeCombineArgs {
  int rows = 0;
  int choices = 0;
  int width = 0;
  Tensor expert;
  Tensor weight;
  Tensor out;
  Tensor sum;  // F32 [rows, width]
};

}  // namespace weir::kernels
