// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/model_config.h"

#include <simdjson.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"

namespace weir::engine {
namespace {

namespace dom = simdjson::dom;

absl::Status Bad(std::string_view field, std::string_view what) {
  return Error(Reason::kBadField,
               absl::StrCat("config.json: ", AbslView(field), " ", AbslView(what)), field);
}

// Reads fields and keeps the first error, so that a parser reads as a list of fields.
class FieldReader {
 public:
  FieldReader(dom::element object, std::string prefix)
      : object_(object), prefix_(std::move(prefix)) {}

  bool Has(const char* field) const {
    dom::element value;
    return object_[field].get(value) == simdjson::SUCCESS && !value.is_null();
  }
  int Integer(const char* field, int64_t low, int64_t high) {
    int64_t value = 0;
    if (object_[field].get(value) != simdjson::SUCCESS) {
      Fail(field, "is missing or not an integer");
      return 0;
    }
    if (value < low || value > high) {
      Fail(field, absl::StrCat("is ", value, ", outside ", low, " to ", high));
      return 0;
    }
    return static_cast<int>(value);
  }
  double Number(const char* field, double low, double high) {
    double value = 0;
    if (object_[field].get(value) != simdjson::SUCCESS) {
      Fail(field, "is missing or not a number");
    } else if (!(value >= low && value <= high)) {
      Fail(field, absl::StrCat("is ", value, ", outside ", low, " to ", high));
    }
    return value;
  }
  bool Flag(const char* field, bool otherwise) {
    if (!Has(field)) return otherwise;
    bool value = otherwise;
    if (object_[field].get(value) != simdjson::SUCCESS) Fail(field, "is not true or false");
    return value;
  }
  std::string Text(const char* field) {
    std::string_view value;
    if (object_[field].get(value) != simdjson::SUCCESS) Fail(field, "is missing or not a string");
    return std::string(value.substr(0, 100));
  }
  // A field that has one meaning we implement.
  void Expect(const char* field, std::string_view wanted, bool required) {
    if (!required && !Has(field)) return;
    const std::string value = Text(field);
    if (status_.ok() && value != wanted) {
      Fail(field, absl::StrCat("is \"", value, "\"; only \"", AbslView(wanted), "\" is supported"));
    }
  }
  // Call only for a field that Has().
  dom::element Element(const char* field) const { return object_[field].value_unsafe(); }
  void Fail(const char* field, std::string_view what) {
    if (status_.ok()) status_ = Bad(prefix_ + field, what);
  }
  const absl::Status& status() const { return status_; }

 private:
  const dom::element object_;
  const std::string prefix_;
  absl::Status status_;
};

absl::StatusOr<dom::element> ParseObject(dom::parser* parser, std::string_view json) {
  if (json.size() > kConfigBytesMax) return Bad("file", "is larger than 1 MiB");
  dom::element root;
  if (parser->parse(json.data(), json.size()).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return Bad("file", "is not a JSON object");
  }
  return root;
}

constexpr int kSizeMax = 1 << 20;

void ReadShape(FieldReader* in, DeepseekV3Config* c) {
  c->vocab = in->Integer("vocab_size", 2, 1 << 24);
  c->hidden = in->Integer("hidden_size", 1, kSizeMax);
  c->layers = in->Integer("num_hidden_layers", 1, 1024);
  c->dense_layers = in->Integer("first_k_dense_replace", 0, c->layers);
  c->dense_width = in->Integer("intermediate_size", 1, kSizeMax);
  c->expert_width = in->Integer("moe_intermediate_size", 1, kSizeMax);
  c->heads = in->Integer("num_attention_heads", 1, 4096);
  c->q_rank = in->Has("q_lora_rank") ? in->Integer("q_lora_rank", 1, kSizeMax) : 0;
  c->kv_rank = in->Integer("kv_lora_rank", 1, 4096);
  c->nope_dim = in->Integer("qk_nope_head_dim", 1, 4096);
  c->rope_dim = in->Integer("qk_rope_head_dim", 2, 4096);
  c->value_dim = in->Integer("v_head_dim", 1, 4096);
  c->positions_max = in->Integer("max_position_embeddings", 1, 1 << 28);
  c->norm_epsilon = in->Number("rms_norm_eps", 0, 1);
  c->rope_theta = in->Number("rope_theta", 1.001, 1e12);
  if (c->rope_dim % 2 != 0) in->Fail("qk_rope_head_dim", "is odd");
  in->Expect("hidden_act", "silu", true);
  if (in->Flag("tie_word_embeddings", false)) {
    in->Fail("tie_word_embeddings", "is true; only untied embeddings are supported");
  }
  if (in->Flag("attention_bias", false)) {
    in->Fail("attention_bias", "is true; biases are not supported");
  }
}

void ReadRouter(FieldReader* in, DeepseekV3Config* c) {
  if (c->dense_layers == c->layers) return;
  c->experts = in->Integer("n_routed_experts", 1, 1024);
  c->shared_experts = in->Has("n_shared_experts") ? in->Integer("n_shared_experts", 0, 64) : 0;
  c->experts_per_token = in->Integer("num_experts_per_tok", 1, 64);
  c->groups = in->Integer("n_group", 1, 1024);
  c->groups_kept = in->Integer("topk_group", 1, c->groups == 0 ? 1 : c->groups);
  c->normalise = in->Flag("norm_topk_prob", true);
  c->routed_scale = in->Number("routed_scaling_factor", 0, 1e6);
  in->Expect("scoring_func", "sigmoid", true);
  in->Expect("topk_method", "noaux_tc", true);
  if (in->Has("moe_layer_freq")) in->Integer("moe_layer_freq", 1, 1);
  if (!in->status().ok()) return;
  if (c->experts % c->groups != 0) {
    in->Fail("n_group", "does not divide n_routed_experts");
  } else if (c->experts_per_token > c->experts / c->groups * c->groups_kept) {
    in->Fail("num_experts_per_tok", "exceeds the experts of topk_group groups");
  }
}

absl::Status ReadYarn(const FieldReader& in, DeepseekV3Config* c) {
  if (!in.Has("rope_scaling")) return absl::OkStatus();
  FieldReader yarn(in.Element("rope_scaling"), "rope_scaling.");
  yarn.Expect(yarn.Has("rope_type") ? "rope_type" : "type", "yarn", true);
  YarnConfig y;
  y.factor = yarn.Number("factor", 1, 1e6);
  y.original_positions = yarn.Number("original_max_position_embeddings", 1, 1e9);
  if (yarn.Has("beta_fast")) y.beta_fast = yarn.Number("beta_fast", 1e-6, 1e6);
  if (yarn.Has("beta_slow")) y.beta_slow = yarn.Number("beta_slow", 1e-6, 1e6);
  if (yarn.Has("mscale_all_dim")) y.mscale_all_dim = yarn.Number("mscale_all_dim", 0, 1e3);
  c->yarn = y;
  return yarn.status();
}

absl::Status ReadQuantisation(const FieldReader& in, DeepseekV3Config* c) {
  if (!in.Has("quantization_config")) return absl::OkStatus();
  FieldReader quant(in.Element("quantization_config"), "quantization_config.");
  quant.Expect("quant_method", "fp8", true);
  quant.Expect("fmt", "e4m3", false);
  dom::array block;
  int64_t rows = 0;
  int64_t cols = 0;
  if (!quant.Has("weight_block_size") ||
      quant.Element("weight_block_size").get(block) != simdjson::SUCCESS || block.size() != 2 ||
      block.at(0).get(rows) != simdjson::SUCCESS || block.at(1).get(cols) != simdjson::SUCCESS ||
      rows < 1 || cols < 1 || rows > kSizeMax || cols > kSizeMax) {
    quant.Fail("weight_block_size", "must be two positive integers");
  }
  c->block_rows = static_cast<int>(rows);
  c->block_cols = static_cast<int>(cols);
  return quant.status();
}

absl::Status ReadStopTokens(const FieldReader& in, DeepseekV3Config* c) {
  if (!in.Has("eos_token_id")) return absl::OkStatus();
  const auto add = [c](const dom::element& value) {
    int64_t token = -1;
    if (value.get(token) != simdjson::SUCCESS || token < 0 || token >= c->vocab) return false;
    c->stop_tokens.push_back(static_cast<TokenId>(token));
    return true;
  };
  const dom::element value = in.Element("eos_token_id");
  dom::array list;
  bool good = true;
  if (value.get(list) == simdjson::SUCCESS) {
    good = list.size() <= 64;
    for (const dom::element& one : list) good = good && add(one);
  } else {
    good = add(value);
  }
  return good ? absl::OkStatus() : Bad("eos_token_id", "must name tokens of the vocabulary");
}

}  // namespace

absl::StatusOr<std::string> ParseModelType(std::string_view json) {
  dom::parser parser;
  WEIR_ASSIGN(const dom::element root, ParseObject(&parser, json));
  FieldReader in(root, "");
  std::string type = in.Text("model_type");
  WEIR_TRY(in.status());
  return type;
}

absl::StatusOr<DeepseekV3Config> ParseDeepseekV3Config(std::string_view json) {
  dom::parser parser;
  WEIR_ASSIGN(const dom::element root, ParseObject(&parser, json));
  FieldReader in(root, "");
  in.Expect("model_type", "deepseek_v3", true);
  WEIR_TRY(in.status());
  DeepseekV3Config config;
  ReadShape(&in, &config);
  ReadRouter(&in, &config);
  WEIR_TRY(in.status());
  WEIR_TRY(ReadYarn(in, &config));
  WEIR_TRY(ReadQuantisation(in, &config));
  WEIR_TRY(ReadStopTokens(in, &config));
  return config;
}

}  // namespace weir::engine
