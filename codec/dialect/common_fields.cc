// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/common_fields.h"

#include <charconv>
#include <iterator>

#include "base/stdx/status.h"

namespace weir::codec {
namespace {

// More than any context; larger budgets are as good as none.
constexpr int64_t kTokensMax = (int64_t{1} << 31) - 1;

using Reader = absl::Status (*)(JsonValue value, std::string_view key, const RequestLimits& limits,
                                ChatRequest* request);

absl::Status ReadMaxTokens(JsonValue value, std::string_view key, const RequestLimits& limits,
                           ChatRequest* request) {
  int64_t number = 0;
  WEIR_TRY(ReadInteger(value, key, 1, kTokensMax, &number));
  request->limits.max_tokens = static_cast<uint32_t>(number);
  return absl::OkStatus();
}

absl::Status ReadStop(JsonValue value, std::string_view key, const RequestLimits& limits,
                      ChatRequest* request) {
  auto& stops = request->limits.stop;
  stops.clear();
  const auto add = [&](JsonValue item, const std::string& path) -> absl::Status {
    std::string stop;
    WEIR_TRY(ReadName(item, path, limits.stop_bytes_max, &stop));
    if (stop.empty()) return BadField(path, "must not be empty");
    stops.push_back(std::move(stop));
    return absl::OkStatus();
  };
  if (value.is_string()) return add(value, std::string(key));
  if (!value.is_array()) return BadField(key, "must be a string or an array of strings");
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, key, limits.stops_max));
  size_t index = 0;
  for (const JsonValue item : array) WEIR_TRY(add(item, Item(key, index++)));
  return absl::OkStatus();
}

absl::Status ReadLogitBias(JsonValue value, std::string_view key, const RequestLimits& limits,
                           ChatRequest* request) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, key));
  auto& biases = request->sampling.logit_bias;
  biases.clear();
  for (const auto field : object) {
    if (biases.size() == limits.logit_bias_max) {
      return BadField(key, "must have at most " + std::to_string(limits.logit_bias_max) +
                               " entries");
    }
    const std::string path = Member(key, field.key);
    TokenId id = -1;
    const char* const end = field.key.data() + field.key.size();
    const auto parsed = std::from_chars(field.key.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end || id < 0) {
      return BadField(path, "must be named by a token id");
    }
    float bias = 0;
    WEIR_TRY(ReadNumber(field.value, path, -100, 100, &bias));
    biases.emplace_back(id, bias);
  }
  return absl::OkStatus();
}

absl::Status ReadStreamOptions(JsonValue value, std::string_view key, const RequestLimits& limits,
                               ChatRequest* request) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, key));
  for (const auto field : object) {
    if (field.value.is_null()) continue;
    bool* target = nullptr;
    if (field.key == "include_usage") target = &request->stream.include_usage;
    if (field.key == "continuous_usage_stats") target = &request->stream.continuous_usage_stats;
    if (target != nullptr) WEIR_TRY(ReadBool(field.value, Member(key, field.key), target));
  }
  return absl::OkStatus();
}

absl::Status ReadSeed(JsonValue value, std::string_view key, const RequestLimits& limits,
                      ChatRequest* request) {
  int64_t number = 0;
  WEIR_TRY(ReadInteger(value, key, INT64_MIN, INT64_MAX, &number));
  request->sampling.seed = static_cast<uint64_t>(number);
  return absl::OkStatus();
}

absl::Status ReadUser(JsonValue value, std::string_view key, const RequestLimits& limits,
                      ChatRequest* request) {
  return ReadName(value, key, limits.name_bytes_max, &request->user);
}

// Fields that would be dangerous to ignore: the answer would silently not be what was asked for,
// or a client would steer what belongs to the servers.
absl::Status RefuseField(JsonValue value, std::string_view key, const RequestLimits& limits,
                         ChatRequest* request) {
  return BadField(key, "is not supported");
}

absl::Status RefuseTrue(JsonValue value, std::string_view key, const RequestLimits& limits,
                        ChatRequest* request) {
  bool on = false;
  WEIR_TRY(ReadBool(value, key, &on));
  return on ? BadField(key, "is not supported") : absl::OkStatus();
}

#define WEIR_FLOAT_FIELD(member, low, high)                                              \
  [](JsonValue value, std::string_view key, const RequestLimits&, ChatRequest* request) { \
    return ReadNumber(value, key, low, high, &request->member);                           \
  }
#define WEIR_BOOL_FIELD(member)                                                          \
  [](JsonValue value, std::string_view key, const RequestLimits&, ChatRequest* request) { \
    return ReadBool(value, key, &request->member);                                        \
  }

struct Entry {
  std::string_view key;
  Reader read;
};

const Entry kEntries[] = {
    {"model",
     [](JsonValue value, std::string_view key, const RequestLimits& limits, ChatRequest* request) {
       return ReadName(value, key, limits.name_bytes_max, &request->model);
     }},
    {"max_tokens", ReadMaxTokens},
    {"min_tokens",
     [](JsonValue value, std::string_view key, const RequestLimits&, ChatRequest* request) {
       int64_t number = 0;
       WEIR_TRY(ReadInteger(value, key, 0, kTokensMax, &number));
       request->limits.min_tokens = static_cast<uint32_t>(number);
       return absl::OkStatus();
     }},
    {"ignore_eos", WEIR_BOOL_FIELD(limits.ignore_eos)},
    {"stop", ReadStop},
    {"temperature", WEIR_FLOAT_FIELD(sampling.temperature, 0, 2)},
    {"top_p", WEIR_FLOAT_FIELD(sampling.top_p, 0, 1)},
    {"min_p", WEIR_FLOAT_FIELD(sampling.min_p, 0, 1)},
    {"top_k",
     [](JsonValue value, std::string_view key, const RequestLimits&, ChatRequest* request) {
       int64_t number = 0;  // -1 is the other common spelling of "all"
       WEIR_TRY(ReadInteger(value, key, -1, INT32_MAX, &number));
       request->sampling.top_k = number < 0 ? 0 : static_cast<int32_t>(number);
       return absl::OkStatus();
     }},
    {"presence_penalty", WEIR_FLOAT_FIELD(sampling.presence_penalty, -2, 2)},
    {"frequency_penalty", WEIR_FLOAT_FIELD(sampling.frequency_penalty, -2, 2)},
    {"repetition_penalty", WEIR_FLOAT_FIELD(sampling.repetition_penalty, 0, 10)},
    {"seed", ReadSeed},
    {"logit_bias", ReadLogitBias},
    {"n",
     [](JsonValue value, std::string_view key, const RequestLimits& limits, ChatRequest* request) {
       int64_t number = 1;
       WEIR_TRY(ReadInteger(value, key, 1, limits.n_max, &number));
       request->n = static_cast<int>(number);
       return absl::OkStatus();
     }},
    {"stream", WEIR_BOOL_FIELD(stream.stream)},
    {"stream_options", ReadStreamOptions},
    {"return_token_ids", WEIR_BOOL_FIELD(return_token_ids)},
    {"user", ReadUser},
    {"user_id", ReadUser},
    {"cache_salt",
     [](JsonValue value, std::string_view key, const RequestLimits& limits, ChatRequest* request) {
       return ReadName(value, key, limits.name_bytes_max, &request->cache_salt);
     }},
    {"kv_transfer_params", RefuseField},
    {"prompt_logprobs", RefuseField},
    {"functions", RefuseField},  // the predecessors of tools and tool_choice
    {"function_call", RefuseField},
    {"use_beam_search", RefuseTrue},
    {"guided_json", RefuseField},
    {"guided_regex", RefuseField},
    {"guided_choice", RefuseField},
    {"guided_grammar", RefuseField},
    {"structured_outputs", RefuseField},
};

#undef WEIR_FLOAT_FIELD
#undef WEIR_BOOL_FIELD

}  // namespace

absl::StatusOr<bool> ReadCommonField(std::string_view key, JsonValue value,
                                     const RequestLimits& limits, ChatRequest* request) {
  for (const Entry& entry : kEntries) {
    if (entry.key != key) continue;
    if (!value.is_null()) WEIR_TRY(entry.read(value, key, limits, request));
    return true;
  }
  return false;
}

absl::Status CheckCommonFields(bool stream_options_given, ChatRequest* request) {
  if (request->sampling.top_p <= 0) return BadField("top_p", "must be greater than 0");
  if (request->sampling.repetition_penalty <= 0) {
    return BadField("repetition_penalty", "must be greater than 0");
  }
  if (stream_options_given && !request->stream.stream) {
    return BadField("stream_options", "needs `stream` to be true");
  }
  if (request->limits.max_tokens && request->limits.min_tokens > *request->limits.max_tokens) {
    return BadField("min_tokens", "must not exceed `max_tokens`");
  }
  return absl::OkStatus();
}

}  // namespace weir::codec
