// SPDX-License-Identifier: Apache-2.0
//
// A V4.1 checkpoint's text weights on a backend, loaded once and shared by every model of the
// process. Constant after Load; any thread may read it. Load checks every tensor first and may block
// on the disk; its errors name the tensor. Engram tables are read where they lie: the checkpoint
// stays mapped as long as this object. Drafter and vision tensors are accepted and not loaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/stdx/status.h"
#include "engine/checkpoint/deepseek_v41_config.h"
#include "engine/checkpoint/weights.h"
#include "engine/ep/ep_comm.h"
#include "engine/model/device_arena.h"
#include "kernels/op/moe.h"

namespace weir::engine {

// A residual site's mixing (v41-spec 5).
struct V41Mix {
  kernels::Matrix fn;
  kernels::Tensor base;
  kernels::Tensor scale;
};

struct V41Attention {
  kernels::Matrix q_a, q_b, kv, o_a, o_b;
  kernels::Tensor q_norm, kv_norm, sink;
};

// Of a KV source; `gate` is empty at ratio 1.
struct V41Compressor {
  kernels::Matrix kv, gate, index_key;
  kernels::Tensor norm, index_key_norm;
};

// Of an index source.
struct V41Indexer {
  kernels::Matrix q;
  kernels::Matrix head_weight;
};

struct V41Moe {
  kernels::Matrix router;
  kernels::Tensor bias;
  kernels::Tensor image_bias;
  std::vector<kernels::ExpertWeights> experts;  // by physical slot
  kernels::ExpertWeights shared;
};

// Of a layer that mixes n-gram rows in.
struct V41Engram {
  kernels::Table table;
  kernels::Matrix kv;
  kernels::Tensor q_weight, k_weight;
  kernels::Tensor multiplier, prime, offset;  // of the hash
};

struct V41Layer {
  kernels::Tensor attention_norm, moe_norm;
  V41Mix attention_mix, moe_mix;
  V41Attention attention;
  V41Compressor compressor;  // empty matrices where the layer is no source
  V41Indexer indexer;
  V41Moe moe;
  V41Engram engram;  // empty table where there is none
};

class DeepseekV41Weights {
 public:
  // `token_map`: compressed id of every token, for Engram; may be empty without it.
  static absl::StatusOr<std::unique_ptr<DeepseekV41Weights>> Load(
      const DeepseekV41Config& config, std::unique_ptr<Weights> checkpoint,
      const std::vector<int32_t>& token_map, const ExpertMap& map, kernels::Backend* backend);

  kernels::Tensor embedding;
  kernels::Tensor final_norm;
  kernels::Matrix head;
  kernels::Tensor frequency;             // of layers of ratio 0
  kernels::Tensor compressed_frequency;  // of all others
  kernels::Tensor token_map;             // I32 [vocab]
  std::vector<V41Layer> layers;

  const Weights& checkpoint() const { return *checkpoint_; }

 private:
  DeepseekV41Weights(std::unique_ptr<Weights> checkpoint, kernels::Backend* backend)
      : checkpoint_(std::move(checkpoint)), arena_(backend) {}

  const std::unique_ptr<const Weights> checkpoint_;
  DeviceArena arena_;
};

}  // namespace weir::engine
