// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v3_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/deepseek_tensors.h"
#include "engine/model/weight_loader.h"
#include "kernels/op/rope.h"

namespace weir::engine {
namespace {

using kernels::ExpertWeights;

ExpertWeights LoadMlp(const std::string& prefix, WeightLoader* load) {
  return {load->Linear(prefix + "gate_proj"), load->Linear(prefix + "up_proj"),
          load->Linear(prefix + "down_proj")};
}

void LoadAttention(const DeepseekV3Config& c, const std::string& p, WeightLoader* load,
                   DeepseekV3Layer* layer) {
  if (c.q_rank > 0) {
    layer->q_a = load->Linear(p + "q_a_proj");
    layer->q_a_norm = load->Floats(p + "q_a_layernorm.weight");
    layer->q_b = load->Linear(p + "q_b_proj");
  } else {
    layer->q = load->Linear(p + "q_proj");
  }
  layer->kv_a = load->Linear(p + "kv_a_proj_with_mqa");
  layer->kv_a_norm = load->Floats(p + "kv_a_layernorm.weight");
  layer->kv_b = load->LinearByHead(p + "kv_b_proj", c.nope_dim, c.value_dim);
  layer->o = load->Linear(p + "o_proj");
  if (c.index_heads == 0) return;
  layer->index.q = load->Linear(p + "indexer.wq_b");
  layer->index.key = load->Linear(p + "indexer.wk");
  layer->index.key_norm = load->Floats(p + "indexer.k_norm.weight");
  layer->index.key_bias = load->Floats(p + "indexer.k_norm.bias");
  layer->index.head_weight = load->Linear(p + "indexer.weights_proj");
}

void LoadFeedForward(const DeepseekV3Config& c, int index, const std::string& p,
                     const ExpertMap& map, WeightLoader* load, DeepseekV3Layer* layer) {
  if (index < c.dense_layers) {
    layer->mlp = LoadMlp(p, load);
    return;
  }
  layer->router = load->Linear(p + "gate");
  if (c.router == RouterKind::kSigmoidBias) {
    layer->router_bias = load->Floats(p + "gate.e_score_correction_bias");
  }
  layer->experts.resize(static_cast<size_t>(c.experts));
  const std::vector<int32_t>& slot_of = map.slot_of[static_cast<size_t>(index - c.dense_layers)];
  for (int e = 0; e < c.experts; ++e) {
    layer->experts[static_cast<size_t>(slot_of[static_cast<size_t>(e)])] =
        LoadMlp(absl::StrCat(p, "experts.", e, "."), load);
  }
  if (c.shared_experts > 0) layer->mlp = LoadMlp(p + "shared_experts.", load);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeepseekV3Weights>> DeepseekV3Weights::Load(
    const DeepseekV3Config& c, const Weights& checkpoint, const ExpertMap& map,
    kernels::Backend* backend) {
  const TensorBlock block{c.block_rows, c.block_cols};
  std::unique_ptr<DeepseekV3Weights> weights(new DeepseekV3Weights(backend));
  const std::vector<ExpectedTensor> expected = DeepseekV3Tensors(c);
  WEIR_TRY(CheckTensors(checkpoint, expected));
  WEIR_TRY(CheckScales(checkpoint, expected));

  WeightLoader load(checkpoint, block, backend, &weights->arena_);
  weights->embedding = load.Rows("model.embed_tokens.weight");
  weights->final_norm = load.Floats("model.norm.weight");
  weights->head = load.Linear("lm_head");
  std::optional<kernels::Yarn> yarn;
  if (c.yarn) {
    yarn = kernels::Yarn{c.yarn->factor, c.yarn->original_positions, c.yarn->beta_fast,
                         c.yarn->beta_slow};
  }
  weights->rope_frequency = load.Copy(kernels::RopeFrequencies(c.rope_dim, c.rope_theta, yarn));
  for (int i = 0; i < c.layers; ++i) {
    const std::string p = absl::StrCat("model.layers.", i, ".");
    DeepseekV3Layer& layer = weights->layers.emplace_back();
    layer.input_norm = load.Floats(p + "input_layernorm.weight");
    layer.post_attention_norm = load.Floats(p + "post_attention_layernorm.weight");
    LoadAttention(c, p + "self_attn.", &load, &layer);
    LoadFeedForward(c, i, p + "mlp.", map, &load, &layer);
    WEIR_TRY(weights->arena_.status());
    checkpoint.ReleasePages();  // the backend has its own copy
  }
  return weights;
}

}  // namespace weir::engine
