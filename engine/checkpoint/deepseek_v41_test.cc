// SPDX-License-Identifier: Apache-2.0
//
// V4.1: the released config.json (testdata/v41-flash) gives the released tensors, and every field
// that is missing, out of range or contradicts another is named.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "engine/checkpoint/deepseek_tensors.h"
#include "engine/checkpoint/mapped_file.h"

namespace weir::engine {
namespace {

const std::string& Released() {
  static const std::string kText =
      *ReadTextFile("engine/checkpoint/testdata/v41-flash/config.json", kConfigBytesMax);
  return kText;
}

std::string With(const std::string& from, const std::string& to) {
  std::string text = Released();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(DeepseekV41Config, ReadsTheRelease) {
  const auto config = ParseDeepseekV41Config(Released());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layers, 40);
  EXPECT_EQ(config->norm_epsilon, 1e-20);
  EXPECT_EQ(config->kv_source(1), -1);
  EXPECT_EQ(config->kv_source(7), 2);
  EXPECT_EQ(config->kv_source(39), 20);
  EXPECT_EQ(config->index_source(35), 32);
  EXPECT_EQ(config->mix_width(), 24);
  EXPECT_EQ(config->engram.primes[0].front(), 16000057);
  EXPECT_EQ(config->engram.primes[1].back(), 16000889);
  EXPECT_EQ(config->engram.width(), 6144);
  EXPECT_EQ(config->draft.target_layers, (std::vector<int>{37, 38, 39}));
  ASSERT_TRUE(config->vision.has_value());
  EXPECT_EQ(config->vision->image_token, 129264);
  EXPECT_FALSE(config->vision->aspect_max.has_value());
  EXPECT_EQ(config->stop_tokens, std::vector<TokenId>{1});
}

struct Fault {
  const char* from;
  const char* to;
  const char* field;
};
constexpr Fault kFaults[] = {
    {"\"deepseek_v41\"", "\"deepseek_v4\"", "model_type"},
    {"\"text_config\"", "\"text\"", "text_config"},
    {"deepseek_v41_text", "text", "text_config.model_type"},
    {"\"vocab_size\": 129280", "\"vocab_size\": null", "text_config.vocab_size"},
    {"\"hidden_size\": 5120", "\"hidden_size\": 5121", "text_config.hidden_size"},
    {"\"num_key_value_heads\": 1", "\"num_key_value_heads\": 8", "text_config.num_key_value_heads"},
    {"\"head_dim\": 512", "\"head_dim\": 500", "text_config.head_dim"},
    {"\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 256", "text_config.index_head_dim"},
    {"\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 63", "text_config.qk_rope_head_dim"},
    {"\"o_groups\": 8", "\"o_groups\": 7", "text_config.o_groups"},
    {"\"silu\"", "\"relu\"", "text_config.hidden_act"},
    {"\"sqrtsoftplus\"", "\"sigmoid\"", "text_config.scoring_func"},
    {"\"norm_topk_prob\": true", "\"norm_topk_prob\": false", "text_config.norm_topk_prob"},
    {"\"n_shared_experts\": 1", "\"n_shared_experts\": 2", "text_config.n_shared_experts"},
    {"\"n_routed_experts\": 384", "\"n_routed_experts\": 4", "text_config.num_experts_per_tok"},
    {"\"swiglu_limit\": 10.0", "\"swiglu_limit\": -1", "text_config.swiglu_limit"},
    {"[0, 0, 2, 2,", "[0, 0, 0, 2,", "text_config.kv_source_layer_ids"},
    {"[0, 0, 2, 2,", "[0, 2, 2, 2,", "text_config.kv_source_layer_ids"},
    {"[0, 0, 2, 2,", "[0, 0, 2, 1,", "text_config.compress_ratios"},
    {"[0, 0, 2, 2,", "[0, 0, 2,", "text_config.compress_ratios"},
    {"[0, 0, 2, 2,", "[0, 0, 3, 2,", "text_config.compress_ratios"},
    {"1, 0, 0, 0]", "1, 0, 0, 1]", "text_config.compress_ratios"},
    {"[2, 8, 14, 20],", "[8, 2, 14, 20],", "text_config.kv_source_layer_ids"},
    {"[2, 8, 14, 20],", "[2, 8, 14, 20, 21],", "text_config.index_source_layer_ids"},
    {"[2, 8, 14, 20, 24", "[2, 14, 20, 24", "text_config.index_source_layer_ids"},
    {"32, 36]", "32, 40]", "text_config.index_source_layer_ids"},
    {"\"candidate_source_layer_id\": 20", "\"candidate_source_layer_id\": 24",
     "text_config.candidate_source_layer_id"},
    {"\"candidate_source_layer_id\": 20", "\"candidate_source_layer_id\": 14",
     "text_config.candidate_source_layer_id"},
    {"\"candidate_topk_blocks\": 2048", "\"candidate_topk_blocks\": 63",
     "text_config.candidate_topk_blocks"},
    {"\"hc_mult\": 4", "\"hc_mult\": 1", "text_config.hc_mult"},
    {"384006168", "384006169", "text_config.engram_num_embeddings"},
    {"[384006168, 384016682]", "[384006168]", "text_config.engram_num_embeddings"},
    {"[1, 14]", "[14, 1]", "text_config.engram_layer_ids"},
    {"\"engram_vocab_size\": 16000000", "\"engram_vocab_size\": 16000058",
     "text_config.engram_num_embeddings"},
    {"\"engram_head_dim\": 256", "\"engram_head_dim\": 250", "text_config.engram_head_dim"},
    {"\"engram_compressed_vocab_size\": 99092", "\"engram_compressed_vocab_size\": 129281",
     "text_config.engram_compressed_vocab_size"},
    {"\"num_nextn_predict_layers\": 3", "\"num_nextn_predict_layers\": 2",
     "text_config.compress_ratios"},
    {"\"dspark_noise_token_id\": 128799", "\"dspark_noise_token_id\": 129280",
     "text_config.dspark_noise_token_id"},
    {"[37, 38, 39]", "[]", "text_config.dspark_target_layer_ids"},
    {"[37, 38, 39]", "[37, 38, 40]", "text_config.dspark_target_layer_ids"},
    {"\"dspark_n_routed_experts\": 128", "\"dspark_n_routed_experts\": 2",
     "text_config.dspark_num_experts_per_tok"},
    {"\"factor\": 16", "\"factor\": 0", "text_config.rope_scaling.factor"},
    {"\"beta_slow\": 1", "\"beta_slow\": 64", "text_config.rope_scaling.beta_slow"},
    {"\"num_attention_heads\": 16", "\"num_attention_heads\": 15",
     "vision_config.num_attention_heads"},
    {"\"image_token_id\": 129264", "\"image_token_id\": 129280", "image_token_id"},
    {"[32, 32]", "[32]", "quantization_config.weight_block_size"},
    {"\"ue8m0\"", "\"float\"", "quantization_config.scale_fmt"},
    {"\"fp4\"", "\"fp8\"", "quantization_config.expert_dtype"},
    {"\"eos_token_id\": 1", "\"eos_token_id\": -1", "eos_token_id"},
};

TEST(DeepseekV41Config, NamesTheFieldAtFault) {
  for (const Fault& c : kFaults) {
    const absl::Status status = ParseDeepseekV41Config(With(c.from, c.to)).status();
    EXPECT_EQ(ReasonOf(status), Reason::kBadField) << c.to;
    EXPECT_EQ(ParamOf(status), c.field) << c.to << ": " << status;
  }
}

TEST(DeepseekV41Tensors, AreThoseOfTheRelease) {
  const auto config = ParseDeepseekV41Config(Released());
  ASSERT_TRUE(config.ok()) << config.status();
  int64_t tensors = 0;
  int64_t bytes = 0;
  std::set<std::string> names;
  std::map<ModelPart, int64_t> values;
  for (const ExpectedTensor& tensor : DeepseekV41Tensors(*config)) {
    tensors += tensor.stored_tensors();
    bytes += tensor.bytes();
    values[tensor.part] += tensor.values();
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
  }
  EXPECT_EQ(tensors, 96085);
  EXPECT_NEAR(static_cast<double>(bytes) / (1 << 30), 475.24, 0.005);
  EXPECT_EQ(values[ModelPart::kEngramTable], int64_t{256} * (384006168 + 384016682));
}

// The oracle's checkpoint has every kind of layer, the drafter and the vision tower.
TEST(DeepseekV41Tensors, AreThoseOfASmallCheckpoint) {
  const std::string directory = "tests/golden/v41";
  const auto text = ReadTextFile(directory + "/config.json", kConfigBytesMax);
  if (!text.ok()) GTEST_SKIP() << text.status();
  const auto config = ParseDeepseekV41Config(*text);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto weights = Weights::Open(directory);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const std::vector<ExpectedTensor> expected = DeepseekV41Tensors(*config);
  EXPECT_EQ(CheckTensors(**weights, expected), absl::OkStatus());
  EXPECT_EQ(CheckScales(**weights, expected), absl::OkStatus());
  int64_t bytes = 0;
  for (const ExpectedTensor& tensor : expected) bytes += tensor.bytes();
  EXPECT_EQ(bytes, static_cast<int64_t>((*weights)->bytes()));
  const kernels::HostMatrix expert =
      HostMatrixOf(**weights, "layers.0.ffn.experts.0.w2.weight", {32, 32});
  EXPECT_EQ(expert.rows, 64);
  EXPECT_EQ(expert.cols, 32);
  EXPECT_EQ(expert.block_rows, 1);
  EXPECT_NE(expert.scales, nullptr);
}

}  // namespace
}  // namespace weir::engine
