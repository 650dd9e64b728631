// SPDX-License-Identifier: Apache-2.0
#include "tools/make_checkpoint/tiny_v3.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "codec/token/tokenizer.h"
#include "engine/checkpoint/deepseek_tensors.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_config.h"
#include "nlohmann/json.hpp"
#include "tools/make_checkpoint/random_weights.h"
#include "tools/make_checkpoint/safetensors_writer.h"

namespace weir::tools {
namespace {

constexpr int64_t kBlock = 128;
constexpr size_t kTokenizerBytesMax = size_t{64} << 20;

// The constant channel after the last norm.
constexpr float kNormedConstant = 1.5f;

std::string ConfigJson(const TinyV3Options& o, const codec::Vocab& vocab) {
  nlohmann::ordered_json config = {
      {"architectures", {"DeepseekV3ForCausalLM"}},
      {"model_type", "deepseek_v3"},
      {"vocab_size", vocab.size()},
      {"hidden_size", o.hidden},
      {"intermediate_size", 2 * o.hidden},
      {"moe_intermediate_size", o.hidden},
      {"num_hidden_layers", o.layers},
      {"first_k_dense_replace", 1},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 4},
      {"q_lora_rank", 128},
      {"kv_lora_rank", 64},
      {"qk_nope_head_dim", 32},
      {"qk_rope_head_dim", 16},
      {"v_head_dim", 32},
      {"n_routed_experts", o.experts},
      {"n_shared_experts", 1},
      {"num_experts_per_tok", 3},
      {"n_group", 4},
      {"topk_group", 2},
      {"norm_topk_prob", true},
      {"routed_scaling_factor", 2.5},
      {"scoring_func", "sigmoid"},
      {"topk_method", "noaux_tc"},
      {"moe_layer_freq", 1},
      {"hidden_act", "silu"},
      {"rms_norm_eps", 1e-6},
      {"max_position_embeddings", o.positions_max},
      {"rope_theta", 10000},
      {"rope_scaling",
       {{"type", "yarn"},
        {"factor", 4},
        {"mscale", 1.0},
        {"mscale_all_dim", 1.0},
        {"original_max_position_embeddings", std::max(1, o.positions_max / 4)},
        {"beta_fast", 32},
        {"beta_slow", 1}}},
      {"num_nextn_predict_layers", 0},
      {"tie_word_embeddings", false},
      {"bos_token_id", vocab.bos().value_or(0)},
      {"eos_token_id", vocab.eos().value_or(1)},
      {"torch_dtype", "bfloat16"},
      {"quantization_config",
       {{"quant_method", "fp8"},
        {"fmt", "e4m3"},
        {"activation_scheme", "dynamic"},
        {"weight_block_size", {kBlock, kBlock}}}}};
  return config.dump(1) + "\n";
}

bool EndsWith(const std::string& name, std::string_view suffix) {
  return absl::EndsWith(name, AbslView(suffix));
}

// Maps that write to the residual stream leave the constant channel alone.
bool WritesResidual(const std::string& name) {
  return EndsWith(name, "o_proj.weight") || EndsWith(name, "down_proj.weight");
}

void AddMatrix(const TinyV3Options& o, const codec::Vocab& vocab,
               const engine::ExpectedTensor& tensor, SafetensorsWriter* out) {
  const int64_t rows = tensor.shape[0];
  const int64_t cols = tensor.shape[1];
  const bool head = tensor.name == "lm_head.weight";
  // Sharper queries and values make attention look at something; a head of 2 gives logits of
  // standard deviation 2.
  float gain = head ? 2.0f : 1.0f;
  if (EndsWith(tensor.name, "q_b_proj.weight") || EndsWith(tensor.name, "kv_b_proj.weight")) {
    gain = 1.5f;
  }
  Generator generator(o.seed, tensor.name);
  std::vector<float> values =
      generator.Draw(rows * cols, 0, gain / std::sqrt(static_cast<float>(cols)));
  if (head) {
    for (int64_t token = 0; token < rows; ++token) {
      values[static_cast<size_t>(token * cols)] =
          BiasOf(vocab, static_cast<TokenId>(token)) / kNormedConstant;
    }
  }
  if (WritesResidual(tensor.name)) std::fill_n(values.begin(), cols, 0.0f);
  if (tensor.dtype == kernels::DType::kF8E4m3) {
    out->AddFp8(tensor.name, rows, cols, kBlock, values);
  } else {
    out->AddBf16(tensor.name, tensor.shape, values);
  }
}

void AddTensor(const TinyV3Options& o, const codec::Vocab& vocab,
               const engine::ExpectedTensor& tensor, SafetensorsWriter* out) {
  Generator generator(o.seed, tensor.name);
  switch (tensor.use) {
    case engine::TensorUse::kMatrix:
      AddMatrix(o, vocab, tensor, out);
      return;
    case engine::TensorUse::kTable: {
      std::vector<float> values = generator.Draw(tensor.shape[0] * tensor.shape[1], 0, 1);
      for (int64_t token = 0; token < tensor.shape[0]; ++token) {
        values[static_cast<size_t>(token * tensor.shape[1])] = kConstantChannel;
      }
      out->AddBf16(tensor.name, tensor.shape, values);
      return;
    }
    case engine::TensorUse::kVector:
      if (EndsWith(tensor.name, "bias")) {
        out->AddF32(tensor.name, tensor.shape, generator.Draw(tensor.shape[0], 0, 0.1f));
      } else {
        out->AddBf16(tensor.name, tensor.shape, generator.Draw(tensor.shape[0], 1, 0.1f));
      }
      return;
    case engine::TensorUse::kPacked:
    case engine::TensorUse::kIndices:
      break;  // V3 has none
  }
}

}  // namespace

absl::Status MakeTinyV3(const TinyV3Options& options) {
  WEIR_ASSIGN(const std::string tokenizer_json,
              engine::ReadTextFile(options.tokenizer, kTokenizerBytesMax));
  WEIR_ASSIGN(const std::shared_ptr<const codec::Tokenizer> tokenizer,
              codec::Tokenizer::FromJson(tokenizer_json));
  const codec::Vocab& vocab = tokenizer->vocab();
  const std::string config_json = ConfigJson(options, vocab);
  WEIR_ASSIGN(const engine::DeepseekV3Config config, engine::ParseDeepseekV3Config(config_json));

  SafetensorsWriter writer;
  for (const engine::ExpectedTensor& tensor : engine::DeepseekV3Tensors(config)) {
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
