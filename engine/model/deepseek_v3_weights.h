// SPDX-License-Identifier: Apache-2.0
//
// A V3 checkpoint's weights on a backend, loaded once and shared by every model of the process.
// Constant after Load; any thread may read it. Load checks every tensor first and may block on the
// disk; its errors name the tensor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/stdx/status.h"
#include "engine/checkpoint/expected_tensors.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/weights.h"
#include "engine/ep/ep_comm.h"
#include "engine/model/device_arena.h"

namespace weir::engine {

// V3.2's selection of the tokens that attention reads.
struct DeepseekV3Index {
  kernels::Matrix q;
  kernels::Matrix key;
  kernels::Tensor key_norm;
  kernels::Tensor key_bias;
  kernels::Matrix head_weight;
};

struct DeepseekV3Layer {
  kernels::Tensor input_norm;
  kernels::Tensor post_attention_norm;
  kernels::Matrix q;  // straight from hidden; empty where q_a and q_b are used
  kernels::Matrix q_a;
  kernels::Tensor q_a_norm;
  kernels::Matrix q_b;
  kernels::Matrix kv_a;
  kernels::Tensor kv_a_norm;
  kernels::Matrix kv_b;
  kernels::Matrix o;
  DeepseekV3Index index;  // empty: attention reads every token
  // A dense MLP, or the shared experts beside the routed ones; empty if there are none.
  kernels::ExpertWeights mlp;
  // Routed experts; empty in dense layers.
  kernels::Matrix router;
  kernels::Tensor router_bias;
  std::vector<kernels::ExpertWeights> experts;  // by physical slot

  bool moe() const { return !experts.empty(); }
};

class DeepseekV3Weights {
 public:
  static absl::StatusOr<std::unique_ptr<DeepseekV3Weights>> Load(const DeepseekV3Config& config,
                                                                 const Weights& checkpoint,
                                                                 const ExpertMap& map,
                                                                 kernels::Backend* backend);

  kernels::Tensor embedding;
  kernels::Tensor final_norm;
  kernels::Matrix head;
  kernels::Tensor rope_frequency;
  std::vector<DeepseekV3Layer> layers;

 private:
  explicit DeepseekV3Weights(kernels::Backend* backend) : arena_(backend) {}

  DeviceArena arena_;
};

}  // namespace weir::engine
