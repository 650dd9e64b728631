// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v3_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "kernels/op/rope.h"

namespace weir::engine {
namespace {

using kernels::DType;
using kernels::ExpertWeights;
using kernels::Matrix;
using kernels::Tensor;

// Moves checked tensors to the device.
class Loader {
 public:
  Loader(const Weights& checkpoint, TensorBlock block, kernels::Backend* backend,
         DeviceArena* arena)
      : checkpoint_(checkpoint), block_(block), stream_(backend->NewStream()), arena_(arena) {}

  Matrix Linear(const std::string& prefix) {
    return arena_->Load(HostMatrixOf(checkpoint_, prefix + ".weight", block_));
  }
  ExpertWeights Mlp(const std::string& prefix) {
    return {Linear(prefix + "gate_proj"), Linear(prefix + "up_proj"), Linear(prefix + "down_proj")};
  }
  // Norms and biases: small, so always F32.
  Tensor Vector(const std::string& name) {
    const TensorView& view = *checkpoint_.Find(name);
    std::vector<float> values(static_cast<size_t>(view.shape[0]));
    for (size_t i = 0; i < values.size(); ++i) {
      if (view.dtype == DType::kF32) {
        values[i] = LoadAs<float>(view.bytes.data() + i * 4);
      } else {
        const uint32_t bits = LoadAs<uint16_t>(view.bytes.data() + i * 2);
        values[i] = std::bit_cast<float>(bits << 16);
      }
    }
    return Floats(values);
  }
  Tensor Floats(const std::vector<float>& values) {
    const Tensor tensor = arena_->Floats(static_cast<int64_t>(values.size()));
    Copy(tensor, values.data(), values.size() * sizeof(float));
    return tensor;
  }
  Tensor Table(const std::string& name) {
    const TensorView& view = *checkpoint_.Find(name);
    const Tensor tensor = arena_->Take(view.dtype, view.shape[0], view.shape[1]);
    Copy(tensor, view.bytes.data(), view.bytes.size());
    return tensor;
  }

 private:
  void Copy(const Tensor& to, const void* from, size_t bytes) {
    if (to.empty()) return;
    stream_->CopyIn(to.address, from, bytes);
    stream_->Wait(stream_->Record());
  }

  const Weights& checkpoint_;
  const TensorBlock block_;
  const std::unique_ptr<kernels::Stream> stream_;
  DeviceArena* const arena_;
};

void LoadAttention(const DeepseekV3Config& c, const std::string& p, Loader* load,
                   DeepseekV3Layer* layer) {
  if (c.q_rank > 0) {
    layer->q_a = load->Linear(p + "q_a_proj");
    layer->q_a_norm = load->Vector(p + "q_a_layernorm.weight");
    layer->q_b = load->Linear(p + "q_b_proj");
  } else {
    layer->q = load->Linear(p + "q_proj");
  }
  layer->kv_a = load->Linear(p + "kv_a_proj_with_mqa");
  layer->kv_a_norm = load->Vector(p + "kv_a_layernorm.weight");
  layer->kv_b = load->Linear(p + "kv_b_proj");
  layer->o = load->Linear(p + "o_proj");
}

void LoadFeedForward(const DeepseekV3Config& c, int index, const std::string& p,
                     const ExpertMap& map, Loader* load, DeepseekV3Layer* layer) {
  if (index < c.dense_layers) {
    layer->mlp = load->Mlp(p);
    return;
  }
  layer->router = load->Linear(p + "gate");
  layer->router_bias = load->Vector(p + "gate.e_score_correction_bias");
  layer->experts.resize(static_cast<size_t>(c.experts));
  const std::vector<int32_t>& slot_of = map.slot_of[static_cast<size_t>(index - c.dense_layers)];
  for (int e = 0; e < c.experts; ++e) {
    layer->experts[static_cast<size_t>(slot_of[static_cast<size_t>(e)])] =
        load->Mlp(absl::StrCat(p, "experts.", e, "."));
  }
  if (c.shared_experts > 0) layer->mlp = load->Mlp(p + "shared_experts.");
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeepseekV3Weights>> DeepseekV3Weights::Load(
    const DeepseekV3Config& c, const Weights& checkpoint, const ExpertMap& map,
    kernels::Backend* backend) {
  const TensorBlock block{c.block_rows, c.block_cols};
  std::unique_ptr<DeepseekV3Weights> weights(new DeepseekV3Weights(backend));
  WEIR_ASSIGN(weights->unused_tensors, CheckTensors(checkpoint, DeepseekV3Tensors(c), block));

  Loader load(checkpoint, block, backend, &weights->arena_);
  weights->embedding = load.Table("model.embed_tokens.weight");
  weights->final_norm = load.Vector("model.norm.weight");
  weights->head = load.Linear("lm_head");
  std::optional<kernels::Yarn> yarn;
  if (c.yarn) {
    yarn = kernels::Yarn{c.yarn->factor, c.yarn->original_positions, c.yarn->beta_fast,
                         c.yarn->beta_slow};
  }
  weights->rope_frequency = load.Floats(kernels::RopeFrequencies(c.rope_dim, c.rope_theta, yarn));
  for (int i = 0; i < c.layers; ++i) {
    const std::string p = absl::StrCat("model.layers.", i, ".");
    DeepseekV3Layer& layer = weights->layers.emplace_back();
    layer.input_norm = load.Vector(p + "input_layernorm.weight");
    layer.post_attention_norm = load.Vector(p + "post_attention_layernorm.weight");
    LoadAttention(c, p + "self_attn.", &load, &layer);
    LoadFeedForward(c, i, p + "mlp.", map, &load, &layer);
    WEIR_TRY(weights->arena_.status());
  }
  return weights;
}

}  // namespace weir::engine
