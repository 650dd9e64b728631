// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/model_config.h"

#include <algorithm>
#include <bit>

#include "engine/checkpoint/config_fields.h"

namespace weir::engine {
namespace {

void ReadShape(ConfigFields* in, DeepseekV3Config* c) {
  ReadTextShape(in, c);
  c->dense_layers = in->Integer("first_k_dense_replace", 0, c->layers);
  c->dense_width = in->Integer("intermediate_size", 1, kSizeMax);
  c->heads = in->Integer("num_attention_heads", 1, kHeadsMax);
  c->q_rank = in->IntegerOr("q_lora_rank", 1, kSizeMax, 0);
  c->kv_rank = in->Integer("kv_lora_rank", 1, 4096);
  c->nope_dim = in->Integer("qk_nope_head_dim", 1, kHeadDimMax);
  c->rope_dim = in->Integer("qk_rope_head_dim", 2, kHeadDimMax);
  c->value_dim = in->Integer("v_head_dim", 1, kHeadDimMax);
  c->draft_layers = in->IntegerOr("num_nextn_predict_layers", 0, 16, 0);
  if (c->rope_dim % 2 != 0) in->Fail("qk_rope_head_dim", "is odd");
}

void ReadRouterKind(ConfigFields* in, bool v2, DeepseekV3Config* c) {
  if (!v2) {
    in->Expect("scoring_func", "sigmoid");
    in->Expect("topk_method", "noaux_tc");
    return;
  }
  in->Expect("scoring_func", "softmax");
  const std::string method = in->Text("topk_method");
  c->router = RouterKind::kSoftmaxGreedy;
  if (method == "group_limited_greedy") {
    c->router = RouterKind::kSoftmaxGroups;
  } else if (method != "greedy") {
    in->Fail("topk_method", "is neither \"greedy\" nor \"group_limited_greedy\"");
  }
}

void ReadRouter(ConfigFields* in, bool v2, DeepseekV3Config* c) {
  if (c->dense_layers == c->layers) return;
  ReadRoutedExperts(in, c);
  c->shared_experts = in->IntegerOr("n_shared_experts", 0, 64, 0);
  c->groups = in->Integer("n_group", 1, 1024);
  c->groups_kept = in->Integer("topk_group", 1, c->groups == 0 ? 1 : c->groups);
  c->normalise = in->Flag("norm_topk_prob", true);
  ReadRouterKind(in, v2, c);
  in->IntegerOr("moe_layer_freq", 1, 1, 1);
  if (!in->ok()) return;
  if (c->experts % c->groups != 0) {
    in->Fail("n_group", "does not divide n_routed_experts");
  } else if (c->experts_per_token > c->experts / c->groups * c->groups_kept) {
    in->Fail("num_experts_per_tok", "exceeds the experts of topk_group groups");
  }
}

// Of V3.2. Its keys and queries go through a Hadamard transform and FP8 blocks of 128.
void ReadV32Index(ConfigFields* in, DeepseekV3Config* c) {
  ReadIndex(in, c);
  in->ExpectFalse("indexer_rope_interleave");
  if (!in->ok()) return;
  c->index_topk = std::min(c->index_topk, c->positions_max);  // more than all is all
  if (c->rope_dim > c->index_dim) in->Fail("index_head_dim", "is below qk_rope_head_dim");
  if (c->index_dim < 128 || !std::has_single_bit(static_cast<unsigned>(c->index_dim))) {
    in->Fail("index_head_dim", "is no power of two from 128 on");
  }
  if (c->q_rank == 0) in->Fail("q_lora_rank", "is missing, which the index reads");
}

}  // namespace

absl::StatusOr<std::string> ParseModelType(std::string_view json) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const simdjson::dom::element root, ParseConfigObject(&parser, json));
  absl::Status status;
  ConfigFields in(root, "", &status);
  std::string type = in.Text("model_type");
  WEIR_TRY(status);
  return type;
}

absl::StatusOr<DeepseekV3Config> ParseDeepseekV3Config(std::string_view json) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const simdjson::dom::element root, ParseConfigObject(&parser, json));
  absl::Status status;
  ConfigFields in(root, "", &status);
  const std::string type = in.Text("model_type");
  if (type != "deepseek_v2" && type != "deepseek_v32") in.Expect("model_type", "deepseek_v3");
  WEIR_TRY(status);
  DeepseekV3Config config;
  config.model_type = type;
  ReadShape(&in, &config);
  ReadRouter(&in, /*v2=*/type == "deepseek_v2", &config);
  if (type == "deepseek_v32") ReadV32Index(&in, &config);
  if (in.Has("quantization_config")) {
    ConfigFields quantisation = in.Object("quantization_config");
    ReadFp8Blocks(&quantisation, &config);
  }
  config.stop_tokens = in.Tokens("eos_token_id", config.vocab);
  WEIR_TRY(status);
  return config;
}

}  // namespace weir::engine
