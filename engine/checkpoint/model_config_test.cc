// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/model_config.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/checkpoint/deepseek_tensors.h"

namespace weir::engine {
namespace {

const std::string& Good() {
  static const std::string kText = R"({
    "model_type": "deepseek_v3", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 192,
    "moe_intermediate_size": 64, "num_hidden_layers": 3, "first_k_dense_replace": 1,
    "num_attention_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 2,
    "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "norm_topk_prob": true,
    "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "hidden_act": "silu", "rms_norm_eps": 1e-06, "max_position_embeddings": 256,
    "rope_theta": 10000, "eos_token_id": 1, "rope_scaling": {"type": "yarn", "factor": 4,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 64},
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}})";
  return kText;
}

std::string With(const std::string& from, const std::string& to) {
  std::string text = Good();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ModelConfig, ReadsEveryField) {
  const auto config = ParseDeepseekV3Config(Good());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocab, 256);
  EXPECT_EQ(config->shared_experts, 2);
  EXPECT_EQ(config->groups_kept, 2);
  ASSERT_TRUE(config->yarn.has_value());
  EXPECT_EQ(config->yarn->original_positions, 64);
  EXPECT_EQ(config->block_rows, 128);
  EXPECT_EQ(config->stop_tokens, std::vector<TokenId>{1});
}

TEST(ModelConfig, NullAndAbsentOptionsHaveTheirMeaning) {
  const auto direct = ParseDeepseekV3Config(With("\"q_lora_rank\": 128", "\"q_lora_rank\": null"));
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_EQ(direct->q_rank, 0);
  const auto plain = ParseDeepseekV3Config(With("\"quantization_config\"", "\"unused\""));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->block_rows, 0);
}

TEST(ModelConfig, NamesTheFieldAtFault) {
  const struct {
    const char* from;
    const char* to;
    const char* field;
  } cases[] = {
      {"\"deepseek_v3\"", "\"llama\"", "model_type"},
      {"\"vocab_size\": 256", "\"vocab_size\": \"256\"", "vocab_size"},
      {"\"vocab_size\": 256", "\"x\": 256", "vocab_size"},
      {"\"hidden_size\": 128", "\"hidden_size\": 0", "hidden_size"},
      {"\"hidden_size\": 128", "\"hidden_size\": 1e9", "hidden_size"},
      {"\"qk_rope_head_dim\": 16", "\"qk_rope_head_dim\": 15", "qk_rope_head_dim"},
      {"\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 4", "first_k_dense_replace"},
      {"\"n_group\": 4", "\"n_group\": 3", "n_group"},
      {"\"topk_group\": 2", "\"topk_group\": 5", "topk_group"},
      {"\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 5", "num_experts_per_tok"},
      {"\"sigmoid\"", "\"softmax\"", "scoring_func"},
      {"\"noaux_tc\"", "\"greedy\"", "topk_method"},
      {"\"silu\"", "\"gelu\"", "hidden_act"},
      {"1e-06", "-1", "rms_norm_eps"},
      {"\"yarn\"", "\"linear\"", "rope_scaling.type"},
      {"\"factor\": 4", "\"factor\": true", "rope_scaling.factor"},
      {"[128, 128]", "[128]", "quantization_config.weight_block_size"},
      {"[128, 128]", "null", "quantization_config.weight_block_size"},
      {"\"fp8\"", "\"gptq\"", "quantization_config.quant_method"},
      {"\"eos_token_id\": 1", "\"eos_token_id\": 256", "eos_token_id"},
      {"\"eos_token_id\": 1", "\"eos_token_id\": [1, \"x\"]", "eos_token_id"},
      {"\"rope_theta\": 10000", "\"rope_theta\": 1e-3", "rope_theta"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ParseDeepseekV3Config(With(c.from, c.to)).status();
    EXPECT_EQ(ReasonOf(status), Reason::kBadField) << c.to;
    EXPECT_EQ(ParamOf(status), c.field) << status;
  }
}

TEST(ModelConfig, RefusesWhatIsNoObject) {
  for (const char* text : {"", "[]", "3", "{\"model_type\":", "{\"rope_scaling\":[]}"}) {
    EXPECT_FALSE(ParseDeepseekV3Config(text).ok()) << text;
  }
  EXPECT_FALSE(
      ParseDeepseekV3Config(With("{\"type\": \"yarn\", \"factor\": 4,\n    \"mscale_all_dim\": "
                                 "1.0, \"original_max_position_embeddings\": 64}",
                                 "[]"))
          .ok());
}

TEST(ExpectedTensors, ListsWhatV3Needs) {
  const auto config = ParseDeepseekV3Config(Good());
  ASSERT_TRUE(config.ok());
  const std::vector<ExpectedTensor> list = DeepseekV3Tensors(*config);
  // 3 global; per layer 2 norms and 7 of attention; dense 3; per MoE layer gate, bias, 9 MLPs of 3.
  EXPECT_EQ(list.size(), 3u + 3 * 9 + 3 + 2 * (2 + 9 * 3));
  for (const ExpectedTensor& tensor : list) {
    if (tensor.name == "model.layers.1.mlp.shared_experts.up_proj.weight") {
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{128, 128}));
    }
  }
}

}  // namespace
}  // namespace weir::engine
