// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/deepseek_v4_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/deepseek_v4_fields.h"

namespace weir::engine {
namespace {

constexpr int kRatioMax = 4096;

void ReadAttention(ConfigFields* in, DeepseekV4Shape* c) {
  c->heads = in->Integer("num_attention_heads", 1, 4096);
  in->Integer("num_key_value_heads", 1, 1);
  c->head_dim = in->Integer("head_dim", 1, 4096);
  c->rope_dim = in->Integer("qk_rope_head_dim", 2, 4096);
  c->q_rank = in->Integer("q_lora_rank", 1, kSizeMax);
  c->o_rank = in->Integer("o_lora_rank", 1, kSizeMax);
  c->o_groups = in->Integer("o_groups", 1, 4096);
  c->window = in->Integer("sliding_window", 1, kSizeMax);
  c->index_heads = in->Integer("index_n_heads", 1, 4096);
  c->index_dim = in->Integer("index_head_dim", 1, 4096);
  c->index_topk = in->Integer("index_topk", 1, kSizeMax);
  c->rope_theta = in->Number("rope_theta", 1.001, 1e12);
  c->compress_rope_theta = in->Number("compress_rope_theta", 1.001, 1e12);
  c->yarn = ReadYarn(in);
  if (!in->ok()) return;
  RequireMultiple(in, "head_dim", c->head_dim, kScaleGroup);
  RequireMultiple(in, "index_head_dim", c->index_dim, kScaleGroup);
  if (c->rope_dim % 2 != 0) in->Fail("qk_rope_head_dim", "is odd");
  if (c->rope_dim > c->head_dim) in->Fail("qk_rope_head_dim", "exceeds head_dim");
  if (c->rope_dim > c->index_dim) in->Fail("index_head_dim", "is below qk_rope_head_dim");
  if (c->heads % c->o_groups != 0) in->Fail("o_groups", "does not divide num_attention_heads");
}

void ReadExperts(ConfigFields* in, DeepseekV4Shape* c) {
  c->experts = in->Integer("n_routed_experts", 1, 1024);
  in->Integer("n_shared_experts", 1, 1);
  c->experts_per_token = in->Integer("num_experts_per_tok", 1, 64);
  c->expert_width = in->Integer("moe_intermediate_size", 1, kSizeMax);
  c->routed_scale = in->Number("routed_scaling_factor", 0, 1e6);
  c->swiglu_limit = in->Number("swiglu_limit", 1e-3, 1e6);
  in->Expect("scoring_func", "sqrtsoftplus");
  in->Expect("topk_method", "noaux_tc");
  if (!in->Flag("norm_topk_prob", true)) in->Fail("norm_topk_prob", "is false");
  if (!in->ok()) return;
  RequireMultiple(in, "moe_intermediate_size", c->expert_width, kScaleGroup);
  if (int64_t{c->layers} * c->experts > kExpertsMax) {
    in->Fail("n_routed_experts", "asks for more experts than a checkpoint may hold");
  }
  if (c->experts_per_token > c->experts) {
    in->Fail("num_experts_per_tok", "exceeds n_routed_experts");
  }
}

}  // namespace

void RequireMultiple(ConfigFields* in, const char* field, int value, int of) {
  if (value % of != 0) in->Fail(field, absl::StrCat("is ", value, ", no multiple of ", of));
}

void ReadV4Shape(ConfigFields* in, DeepseekV4Shape* c) {
  c->vocab = in->Integer("vocab_size", 2, 1 << 24);
  c->hidden = in->Integer("hidden_size", 1, kSizeMax);
  c->layers = in->Integer("num_hidden_layers", 1, kLayersMax);
  c->norm_epsilon = in->Number("rms_norm_eps", 0, 1);
  c->positions_max = in->Integer("max_position_embeddings", 1, 1 << 28);
  in->ExpectIfPresent("hidden_act", "silu");
  in->ExpectFalse("tie_word_embeddings");
  in->ExpectFalse("attention_bias");
  c->streams = in->Integer("hc_mult", 2, 8);
  c->sinkhorn_iterations = in->Integer("hc_sinkhorn_iters", 1, 1000);
  c->hc_epsilon = in->Number("hc_eps", 0, 1);
  RequireMultiple(in, "hidden_size", c->hidden, kScaleGroup);
  ReadAttention(in, c);
  ReadExperts(in, c);
}

void ReadV4Ratios(ConfigFields* in, int stages, int ratio_max, DeepseekV4Shape* c) {
  for (const int64_t ratio : in->Integers("compress_ratios", 0, ratio_max, 2 * kLayersMax)) {
    c->ratios.push_back(static_cast<int>(ratio));
  }
  if (!in->ok()) return;
  const auto wanted = static_cast<size_t>(c->layers + stages);
  if (c->ratios.size() != wanted) {
    in->Fail("compress_ratios",
             absl::StrCat("has ", c->ratios.size(), " entries for ", wanted, " layers"));
  } else if (std::any_of(c->ratios.begin() + c->layers, c->ratios.end(),
                         [](int ratio) { return ratio != 0; })) {
    in->Fail("compress_ratios", "of a draft stage is not 0");
  }
}

void ReadV4Quantisation(ConfigFields* in, DeepseekV4Shape* c) {
  in->Expect("quant_method", "fp8");
  in->ExpectIfPresent("fmt", "e4m3");
  in->ExpectIfPresent("activation_scheme", "dynamic");
  in->Expect("scale_fmt", "ue8m0");
  const std::vector<int64_t> block = in->Integers("weight_block_size", 1, kSizeMax, 2);
  if (!in->ok()) return;
  if (block.size() != 2) {
    in->Fail("weight_block_size", "must be two positive integers");
    return;
  }
  c->block_rows = static_cast<int>(block[0]);
  c->block_cols = static_cast<int>(block[1]);
}

absl::StatusOr<DeepseekV4Config> ParseDeepseekV4Config(std::string_view json) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const simdjson::dom::element root, ParseConfigObject(&parser, json));
  absl::Status status;
  ConfigFields in(root, "", &status);
  in.Expect("model_type", "deepseek_v4");
  DeepseekV4Config config;
  ReadV4Shape(&in, &config);
  config.hash_layers = in.IntegerOr("num_hash_layers", 0, config.layers, 0);
  config.draft_layers = in.IntegerOr("num_nextn_predict_layers", 0, 16, 0);
  if (in.Has("dspark_block_size")) in.Fail("dspark_block_size", "is not supported for V4");
  in.ExpectIfPresent("expert_dtype", "fp4");
  ReadV4Ratios(&in, config.draft_layers, kRatioMax, &config);
  if (in.Has("quantization_config")) {
    ConfigFields quantisation = in.Object("quantization_config");
    ReadV4Quantisation(&quantisation, &config);
  }
  config.stop_tokens = in.Tokens("eos_token_id", config.vocab);
  WEIR_TRY(status);
  return config;
}

}  // namespace weir::engine
