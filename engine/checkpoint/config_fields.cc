// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/config_fields.h"

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"

namespace weir::engine {
namespace {

namespace dom = simdjson::dom;

// In all layers together: six tensors each must stay below what a checkpoint may hold.
constexpr int64_t kExpertsMax = int64_t{1} << 17;
constexpr int64_t kIndexMax = 1024;  // heads and their width, for which kernels have room

absl::Status Bad(std::string_view field, std::string_view what) {
  return Error(Reason::kBadField,
               absl::StrCat("config.json: ", AbslView(field), " ", AbslView(what)), field);
}

// `rope_scaling`, absent where it is null.
std::optional<YarnConfig> ReadYarn(ConfigFields* in) {
  if (!in->Has("rope_scaling")) return std::nullopt;
  ConfigFields yarn = in->Object("rope_scaling");
  yarn.Expect(yarn.Has("rope_type") ? "rope_type" : "type", "yarn");
  YarnConfig y;
  y.factor = yarn.Number("factor", 1, 1e6);
  y.original_positions = yarn.Number("original_max_position_embeddings", 1, 1e9);
  y.beta_fast = yarn.NumberOr("beta_fast", 1e-6, 1e6, y.beta_fast);
  y.beta_slow = yarn.NumberOr("beta_slow", 1e-6, 1e6, y.beta_slow);
  y.mscale_all_dim = yarn.NumberOr("mscale_all_dim", 0, 1e3, 0);
  if (yarn.ok() && y.beta_slow >= y.beta_fast) yarn.Fail("beta_slow", "is not below beta_fast");
  return y;
}

}  // namespace

bool ConfigFields::Has(const char* field) const {
  dom::element value;
  return object_[field].get(value) == simdjson::SUCCESS && !value.is_null();
}

int ConfigFields::Integer(const char* field, int64_t low, int64_t high) {
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

int ConfigFields::IntegerOr(const char* field, int64_t low, int64_t high, int otherwise) {
  return Has(field) ? Integer(field, low, high) : otherwise;
}

double ConfigFields::Number(const char* field, double low, double high) {
  double value = 0;
  if (object_[field].get(value) != simdjson::SUCCESS) {
    Fail(field, "is missing or not a number");
    return 0;
  }
  if (!(value >= low && value <= high)) {
    Fail(field, absl::StrCat("is ", value, ", outside ", low, " to ", high));
    return 0;
  }
  return value;
}

double ConfigFields::NumberOr(const char* field, double low, double high, double otherwise) {
  return Has(field) ? Number(field, low, high) : otherwise;
}

bool ConfigFields::Flag(const char* field, bool otherwise) {
  if (!Has(field)) return otherwise;
  bool value = otherwise;
  if (object_[field].get(value) != simdjson::SUCCESS) Fail(field, "is not true or false");
  return value;
}

std::string ConfigFields::Text(const char* field) {
  std::string_view value;
  if (object_[field].get(value) != simdjson::SUCCESS) Fail(field, "is missing or not a string");
  return std::string(value.substr(0, 100));
}

std::vector<int64_t> ConfigFields::Integers(const char* field, int64_t low, int64_t high,
                                            size_t count_max) {
  dom::array list;
  std::vector<int64_t> values;
  if (object_[field].get(list) != simdjson::SUCCESS) {
    Fail(field, "is missing or not a list");
    return {};
  }
  for (const dom::element& entry : list) {
    int64_t value = 0;
    if (values.size() == count_max) {
      Fail(field, absl::StrCat("has more than ", count_max, " entries"));
      return {};
    }
    if (entry.get(value) != simdjson::SUCCESS || value < low || value > high) {
      Fail(field, absl::StrCat("has an entry that is no integer of ", low, " to ", high));
      return {};
    }
    values.push_back(value);
  }
  return values;
}

std::vector<int> ConfigFields::Ascending(const char* field, int64_t low, int64_t high,
                                         size_t count_max) {
  std::vector<int> values;
  for (const int64_t value : Integers(field, low, high, count_max)) {
    if (!values.empty() && value <= values.back()) {
      Fail(field, "is not in ascending order");
      return {};
    }
    values.push_back(static_cast<int>(value));
  }
  return values;
}

std::vector<TokenId> ConfigFields::Tokens(const char* field, int vocab) {
  if (!Has(field)) return {};
  std::vector<TokenId> tokens;
  const auto add = [&tokens, vocab](const dom::element& value) {
    int64_t token = -1;
    if (value.get(token) != simdjson::SUCCESS || token < 0 || token >= vocab) return false;
    tokens.push_back(static_cast<TokenId>(token));
    return true;
  };
  const dom::element value = object_[field].value_unsafe();
  dom::array list;
  bool good = true;
  if (value.get(list) == simdjson::SUCCESS) {
    good = list.size() <= 64;
    for (const dom::element& one : list) good = good && add(one);
  } else {
    good = add(value);
  }
  if (!good) Fail(field, "must name tokens of the vocabulary");
  return tokens;
}

void ConfigFields::Expect(const char* field, std::string_view wanted) {
  const std::string value = Text(field);
  if (ok() && value != wanted) {
    Fail(field, absl::StrCat("is \"", value, "\"; only \"", AbslView(wanted), "\" is supported"));
  }
}

void ConfigFields::ExpectIfPresent(const char* field, std::string_view wanted) {
  if (Has(field)) Expect(field, wanted);
}

void ConfigFields::ExpectFalse(const char* field) {
  if (Flag(field, false)) Fail(field, "is true; only false is supported");
}

ConfigFields ConfigFields::Object(const char* field) {
  dom::element value;
  if (object_[field].get(value) != simdjson::SUCCESS || !value.is_object()) {
    Fail(field, "is missing or not an object");
    value = object_;  // what is read from here on counts for nothing
  }
  return {value, absl::StrCat(prefix_, field, "."), status_};
}

void ConfigFields::Fail(const char* field, std::string_view what) {
  if (status_->ok()) *status_ = Bad(prefix_ + field, what);
}

absl::StatusOr<dom::element> ParseConfigObject(dom::parser* parser, std::string_view json) {
  if (json.size() > kConfigBytesMax) return Bad("file", "is larger than 1 MiB");
  dom::element root;
  if (parser->parse(json.data(), json.size()).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return Bad("file", "is not a JSON object");
  }
  return root;
}

void ReadTextShape(ConfigFields* in, TextShape* c) {
  c->vocab = in->Integer("vocab_size", 2, 1 << 24);
  c->hidden = in->Integer("hidden_size", 1, kSizeMax);
  c->layers = in->Integer("num_hidden_layers", 1, kLayersMax);
  c->norm_epsilon = in->Number("rms_norm_eps", 0, 1);
  c->positions_max = in->Integer("max_position_embeddings", 1, 1 << 28);
  c->rope_theta = in->Number("rope_theta", 1.001, 1e12);
  c->yarn = ReadYarn(in);
  in->ExpectIfPresent("hidden_act", "silu");
  in->ExpectFalse("tie_word_embeddings");
  in->ExpectFalse("attention_bias");
}

void ReadRoutedExperts(ConfigFields* in, TextShape* c) {
  c->experts = in->Integer("n_routed_experts", 1, 1024);
  c->experts_per_token = in->Integer("num_experts_per_tok", 1, 64);
  c->expert_width = in->Integer("moe_intermediate_size", 1, kSizeMax);
  c->routed_scale = in->Number("routed_scaling_factor", 0, 1e6);
  if (!in->ok()) return;
  if (int64_t{c->layers} * c->experts > kExpertsMax) {
    in->Fail("n_routed_experts", "asks for more experts than a checkpoint may hold");
  } else if (c->experts_per_token > c->experts) {
    in->Fail("num_experts_per_tok", "exceeds n_routed_experts");
  }
}

void ReadIndex(ConfigFields* in, TextShape* c) {
  c->index_heads = in->Integer("index_n_heads", 1, kIndexMax);
  c->index_dim = in->Integer("index_head_dim", 1, kIndexMax);
  c->index_topk = in->Integer("index_topk", 1, kSizeMax);
}

void ReadFp8Blocks(ConfigFields* in, TextShape* c) {
  in->Expect("quant_method", "fp8");
  in->ExpectIfPresent("fmt", "e4m3");
  in->ExpectIfPresent("activation_scheme", "dynamic");
  const std::vector<int64_t> block = in->Integers("weight_block_size", 1, kSizeMax, 2);
  if (!in->ok()) return;
  if (block.size() != 2) {
    in->Fail("weight_block_size", "must be two positive integers");
    return;
  }
  c->block_rows = static_cast<int>(block[0]);
  c->block_cols = static_cast<int>(block[1]);
}

}  // namespace weir::engine
