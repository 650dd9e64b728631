// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/deepseek_v4_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/deepseek_v4_fields.h"

namespace weir::engine {
namespace {

constexpr int kRatioMax = 4096;

void ReadAttention(ConfigFields* in, DeepseekV4Shape* c) {
  c->heads = in->Integer("num_attention_heads", 1, kHeadsMax);
  in->Integer("num_key_value_heads", 1, 1);
  c->head_dim = in->Integer("head_dim", 1, kHeadDimMax);
  c->rope_dim = in->Integer("qk_rope_head_dim", 2, kHeadDimMax);
  c->q_rank = in->Integer("q_lora_rank", 1, kSizeMax);
  c->o_rank = in->Integer("o_lora_rank", 1, kSizeMax);
  c->o_groups = in->Integer("o_groups", 1, kHeadsMax);
  c->window = in->Integer("sliding_window", 1, kSizeMax);
  ReadIndex(in, c);
  c->compress_rope_theta = in->Number("compress_rope_theta", 1.001, 1e12);
  if (!in->ok()) return;
  RequireMultiple(in, "head_dim", c->head_dim, kScaleGroup);
  RequireMultiple(in, "index_head_dim", c->index_dim, kScaleGroup);
  if (c->rope_dim % 2 != 0) in->Fail("qk_rope_head_dim", "is odd");
  if (c->rope_dim > c->head_dim) in->Fail("qk_rope_head_dim", "exceeds head_dim");
  if (c->rope_dim > c->index_dim) in->Fail("index_head_dim", "is below qk_rope_head_dim");
  if (c->heads % c->o_groups != 0) in->Fail("o_groups", "does not divide num_attention_heads");
}

void ReadExperts(ConfigFields* in, DeepseekV4Shape* c) {
  ReadRoutedExperts(in, c);
  in->Integer("n_shared_experts", 1, 1);
  c->swiglu_limit = in->Number("swiglu_limit", 1e-3, 1e6);
  in->Expect("scoring_func", "sqrtsoftplus");
  in->Expect("topk_method", "noaux_tc");
  if (!in->Flag("norm_topk_prob", true)) in->Fail("norm_topk_prob", "is false");
  if (in->ok()) RequireMultiple(in, "moe_intermediate_size", c->expert_width, kScaleGroup);
}

}  // namespace

void RequireMultiple(ConfigFields* in, const char* field, int value, int of) {
  if (value % of != 0) in->Fail(field, absl::StrCat("is ", value, ", no multiple of ", of));
}

void ReadV4Shape(ConfigFields* in, DeepseekV4Shape* c) {
  ReadTextShape(in, c);
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
  ReadFp8Blocks(in, c);
  in->Expect("scale_fmt", "ue8m0");
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
