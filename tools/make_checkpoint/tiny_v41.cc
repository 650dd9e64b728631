// SPDX-License-Identifier: Apache-2.0
#include "tools/make_checkpoint/tiny_v41.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "codec/token/tokenizer.h"
#include "engine/checkpoint/deepseek_tensors.h"
#include "engine/checkpoint/engram_token_map.h"
#include "engine/checkpoint/mapped_file.h"
#include "nlohmann/json.hpp"
#include "tools/make_checkpoint/random_weights.h"
#include "tools/make_checkpoint/released_form.h"
#include "tools/make_checkpoint/safetensors_writer.h"

namespace weir::tools {
namespace {

using engine::ExpectedTensor;
using engine::TensorUse;
using nlohmann::ordered_json;

constexpr size_t kTextBytesMax = size_t{64} << 20;
constexpr int kNgramTokens = 500;  // engram_vocab_size: primes from here on
constexpr int kNgramHeads = 2;
constexpr int kNgramMax = 4;
constexpr TokenId kPadToken = 2;
// The constant channel after the last norm.
constexpr float kNormedConstant = 1.5f;

bool IsPrime(int n) {
  for (int d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return n > 1;
}

// Rows of each table: the sum of the next primes.
std::vector<int> TableRows(size_t tables) {
  std::vector<int> rows(tables);
  int prime = kNgramTokens - 1;
  for (int& sum : rows) {
    for (int i = 0; i < (kNgramMax - 1) * kNgramHeads; ++i) {
      do {
        ++prime;
      } while (!IsPrime(prime));
      sum += prime;
    }
  }
  return rows;
}

// A control token's id, or another's where the vocabulary lacks it.
TokenId IdOf(const codec::Vocab& vocab, std::string_view spelling, TokenId otherwise) {
  return vocab.FindAdded(spelling).value_or(otherwise);
}

// Layers: 2 of window only, a source of ratio 2 and a reader of it, then the decoder: a source of
// ratio 1 that finds candidates, a reader, a second selection and its reader.
ordered_json TextConfig(const TinyV41Options& o, const codec::Vocab& vocab, int classes) {
  const std::vector<int> engram_layers = {1, 3};
  const TokenId noise = IdOf(vocab, "<｜place▁holder▁no▁0｜>", 0);
  return {{"model_type", "deepseek_v41_text"},
          {"vocab_size", vocab.size()},
          {"hidden_size", o.hidden},
          {"moe_intermediate_size", o.hidden / 2},
          {"num_hidden_layers", 8},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 1},
          {"head_dim", 64},
          {"qk_rope_head_dim", 16},
          {"q_lora_rank", 64},
          {"o_lora_rank", 32},
          {"o_groups", 2},
          {"hidden_act", "silu"},
          {"swiglu_limit", 10.0},
          {"rms_norm_eps", 1e-20},
          {"tie_word_embeddings", false},
          {"max_position_embeddings", o.positions_max},
          {"rope_theta", 10000},
          {"rope_scaling",
           {{"rope_type", "yarn"},
            {"factor", 4},
            {"beta_fast", 32},
            {"beta_slow", 1},
            {"original_max_position_embeddings", std::max(1, o.positions_max / 4)}}},
          {"n_routed_experts", o.experts},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 2},
          {"scoring_func", "sqrtsoftplus"},
          {"topk_method", "noaux_tc"},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", 1.5},
          {"sliding_window", 128},
          {"compress_ratios", {0, 0, 2, 2, 1, 1, 1, 1, 0, 0, 0}},
          {"compress_rope_theta", 160000},
          {"kv_source_layer_ids", {2, 4}},
          {"index_source_layer_ids", {2, 4, 6}},
          {"index_n_heads", 8},
          {"index_head_dim", 32},
          {"index_topk", 64},
          {"candidate_source_layer_id", 4},
          {"candidate_topk_blocks", 64},
          {"candidate_block_size", 8},
          {"hc_mult", 4},
          {"hc_sinkhorn_iters", 20},
          {"hc_eps", 1e-6},
          {"engram_layer_ids", engram_layers},
          {"engram_num_embeddings", TableRows(engram_layers.size())},
          {"engram_max_ngram_size", kNgramMax},
          {"engram_vocab_size", kNgramTokens},
          {"engram_n_heads", kNgramHeads},
          {"engram_head_dim", 32},
          {"engram_pad_token_id", kPadToken},
          {"engram_compressed_vocab_size", classes},
          {"num_nextn_predict_layers", 3},
          {"dspark_block_size", 5},
          {"dspark_noise_token_id", noise},
          {"dspark_target_layer_ids", {5, 6, 7}},
          {"dspark_markov_rank", 32},
          {"dspark_n_routed_experts", 4},
          {"dspark_num_experts_per_tok", 2}};
}

std::string ConfigJson(const TinyV41Options& o, const codec::Vocab& vocab, int classes) {
  const ordered_json config = {{"architectures", {"DeepseekV41ForCausalLM"}},
                               {"model_type", "deepseek_v41"},
                               {"dtype", "bfloat16"},
                               {"bos_token_id", vocab.bos().value_or(0)},
                               {"eos_token_id", vocab.eos().value_or(1)},
                               {"pad_token_id", kPadToken},
                               {"image_token_id", IdOf(vocab, "<｜image｜>", 0)},
                               {"quantization_config",
                                {{"quant_method", "fp8"},
                                 {"activation_scheme", "dynamic"},
                                 {"weight_block_size", {32, 32}},
                                 {"scale_fmt", "ue8m0"},
                                 {"expert_dtype", "fp4"}}},
                               {"text_config", TextConfig(o, vocab, classes)},
                               {"vision_config",
                                {{"model_type", "deepseek_v41_vision"},
                                 {"num_hidden_layers", 2},
                                 {"hidden_size", 64},
                                 {"num_attention_heads", 2},
                                 {"intermediate_size", 96},
                                 {"patch_size", 14},
                                 {"rope_theta", 10000},
                                 {"downsample_ratio", 3},
                                 {"max_image_tokens", 1024},
                                 {"min_pixels", 7056},
                                 {"max_wh_ratio", nullptr}}}};
  return config.dump(1) + "\n";
}

bool EndsWith(const std::string& name, std::string_view suffix) {
  return absl::EndsWith(name, AbslView(suffix));
}

// Mean and spread of a tensor that is no matrix.
std::vector<float> DrawVector(const ExpectedTensor& tensor, Generator* generator) {
  const int64_t count = tensor.values();
  const std::string& name = tensor.name;
  if (EndsWith(name, "attn_sink")) return generator->Draw(count, 0, 1);
  if (EndsWith(name, "_base")) return generator->Draw(count, 0, 0.3f);
  if (EndsWith(name, "_scale")) return generator->Draw(count, 0.6f, 0.1f);
  if (absl::StrContains(name, "bias")) return generator->Draw(count, 0, 0.1f);
  if (absl::StartsWith(name, "image_")) return generator->Draw(count, 0, 1);
  return generator->Draw(count, 1, 0.1f);
}

// Rows of a matrix that write to the constant channel of the residual stream; -1: none do.
int64_t ConstantRow(const ExpectedTensor& tensor, int64_t hidden) {
  if (EndsWith(tensor.name, "wo_b.weight")) return 0;
  if (EndsWith(tensor.name, ".w2.weight") && tensor.shape[0] == hidden) return 0;
  if (EndsWith(tensor.name, "engram.wkv.weight")) return tensor.shape[0] - hidden;  // of the value
  return -1;
}

std::vector<float> DrawMatrix(const ExpectedTensor& tensor, const codec::Vocab& vocab,
                              int64_t hidden, Generator* generator) {
  const int64_t cols = tensor.shape[1];
  const bool head = tensor.name == "head.weight";
  float gain = head ? 2.0f : 1.0f;
  if (EndsWith(tensor.name, "wq_b.weight")) gain = 1.5f;
  if (EndsWith(tensor.name, "gate.weight")) gain = 2.0f;
  std::vector<float> values =
      generator->Draw(tensor.shape[0] * cols, 0, gain / std::sqrt(static_cast<float>(cols)));
  if (head) {
    for (int64_t token = 0; token < tensor.shape[0]; ++token) {
      values[static_cast<size_t>(token * cols)] =
          BiasOf(vocab, static_cast<TokenId>(token)) / kNormedConstant;
    }
  }
  const int64_t row = ConstantRow(tensor, hidden);
  if (row >= 0) std::fill_n(values.begin() + row * cols, cols, 0.0f);
  return values;
}

std::vector<float> DrawTable(const ExpectedTensor& tensor, Generator* generator) {
  if (EndsWith(tensor.name, "q_weight") || EndsWith(tensor.name, "k_weight")) {
    return generator->Draw(tensor.values(), 1, 0.3f);
  }
  std::vector<float> values = generator->Draw(tensor.values(), 0, 1);
  if (tensor.name == "embed.weight") {
    for (int64_t token = 0; token < tensor.shape[0]; ++token) {
      values[static_cast<size_t>(token * tensor.shape[1])] = kConstantChannel;
    }
  }
  return values;
}

void AddTensor(const TinyV41Options& o, const codec::Vocab& vocab, const ExpectedTensor& tensor,
               SafetensorsWriter* out) {
  Generator generator(o.seed, tensor.name);
  switch (tensor.use) {
    case TensorUse::kVector:
      return AddReleased(tensor, DrawVector(tensor, &generator), out);
    case TensorUse::kMatrix:
      return AddReleased(tensor, DrawMatrix(tensor, vocab, o.hidden, &generator), out);
    case TensorUse::kTable:
    case TensorUse::kPacked:
      return AddReleased(tensor, DrawTable(tensor, &generator), out);
    case TensorUse::kIndices:
      break;  // V4.1 has none
  }
}

}  // namespace

absl::Status MakeTinyV41(const TinyV41Options& options) {
  WEIR_ASSIGN(const std::string tokenizer_json,
              engine::ReadTextFile(options.tokenizer, kTextBytesMax));
  WEIR_ASSIGN(const std::shared_ptr<const codec::Tokenizer> tokenizer,
              codec::Tokenizer::FromJson(tokenizer_json));
  const codec::Vocab& vocab = tokenizer->vocab();
  const std::vector<int32_t> map =
      engine::EngramTokenMap(vocab, static_cast<size_t>(vocab.size()), kPadToken);
  const int classes = *std::max_element(map.begin(), map.end()) + 1;
  const std::string config_json = ConfigJson(options, vocab, classes);
  WEIR_ASSIGN(const engine::DeepseekV41Config config, engine::ParseDeepseekV41Config(config_json));

  SafetensorsWriter writer;
  for (const ExpectedTensor& tensor : engine::DeepseekV41Tensors(config)) {
    AddTensor(options, vocab, tensor, &writer);
  }
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) {
    return Error(Reason::kBadField, absl::StrCat("cannot make directory ", options.out), "out");
  }
  // The configuration comes last: a directory that has one is complete.
  WEIR_TRY(writer.Write(options.out + "/model.safetensors"));
  WEIR_TRY(WriteFile(options.out + "/tokenizer.json", tokenizer_json));
  return WriteFile(options.out + "/config.json", config_json);
}

}  // namespace weir::tools
