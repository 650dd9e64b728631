// SPDX-License-Identifier: Apache-2.0
//
// What config.json of a DeepSeek V4 checkpoint says, and the shape that V4.1 shares with it. Pure;
// errors are kBadField and name the field.
#pragma once

#include <string_view>
#include <vector>

#include "base/stdx/status.h"
#include "engine/checkpoint/model_config.h"

namespace weir::engine {

// What V4 and V4.1 share: parallel residual streams, one latent KV head, a sliding window in every
// layer and compressed rows beside it, FP4 experts.
struct DeepseekV4Shape : TextShape {  // rope_theta: layers of ratio 0 and the drafter, without YaRN
  int heads = 0;
  int head_dim = 0;
  int rope_dim = 0;  // the last dims of a head, and of an index head
  int q_rank = 0;
  int o_rank = 0;  // of each output group
  int o_groups = 0;
  int window = 0;
  double compress_rope_theta = 0;  // all others, with YaRN
  std::vector<int> ratios;  // of each layer, then of each draft stage: tokens per compressed row
  double swiglu_limit = 0;

  int streams = 0;  // hc_mult
  int sinkhorn_iterations = 0;
  double hc_epsilon = 0;

  // Numbers that one residual site mixes with: pre and post of each stream and their matrix.
  int mix_width() const { return streams * (streams + 2); }
};

// A layer's ratio says what it reads beside its window: 0 nothing, 4 what its index selects of
// overlapping rows, any other all visible rows. Every layer compresses for itself.
struct DeepseekV4Config : DeepseekV4Shape {
  int hash_layers = 0;   // the first layers choose experts by token id
  int draft_layers = 0;  // num_nextn_predict_layers

  static constexpr int kIndexedRatio = 4;
};

absl::StatusOr<DeepseekV4Config> ParseDeepseekV4Config(std::string_view json);

}  // namespace weir::engine
