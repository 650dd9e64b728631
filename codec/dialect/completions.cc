// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/completions.h"

#include "base/stdx/status.h"
#include "codec/dialect/common_fields.h"

namespace weir::codec {
namespace {

absl::StatusOr<std::vector<TokenId>> ReadIds(const JsonArray& array, std::string_view path) {
  std::vector<TokenId> ids;
  size_t index = 0;
  for (const JsonValue item : array) {
    int64_t id = 0;
    if (!item.is_int64() || item.get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) {
      return BadField(Item(path, index), "must be a token id, an integer not below 0");
    }
    ids.push_back(static_cast<TokenId>(id));
    ++index;
  }
  if (ids.empty()) return BadField(path, "must not be empty");
  return ids;
}

absl::Status ReadPrompt(JsonValue value, RawPrompt* raw) {
  constexpr std::string_view kPath = "prompt";
  std::string text;
  if (value.is_string()) {
    WEIR_TRY(ReadText(value, kPath, &text));
    raw->prompt = std::move(text);
    return absl::OkStatus();
  }
  JsonArray array;
  if (value.get(array) != simdjson::SUCCESS) {
    return BadField(kPath, "must be a string or an array of token ids");
  }
  if (array.size() == 0) return BadField(kPath, "must not be empty");
  const JsonValue first = *array.begin();
  if (!first.is_string() && !first.is_array()) {
    WEIR_ASSIGN(raw->prompt, ReadIds(array, kPath));
    return absl::OkStatus();
  }
  if (array.size() > 1) {
    return BadField(kPath, "must hold one prompt; send further prompts as further requests");
  }
  if (first.is_string()) {
    WEIR_TRY(ReadText(first, "prompt[0]", &text));
    raw->prompt = std::move(text);
    return absl::OkStatus();
  }
  WEIR_ASSIGN(raw->prompt, ReadIds(JsonArray(first), "prompt[0]"));
  return absl::OkStatus();
}

absl::Status ReadOwnField(std::string_view key, JsonValue value, const RequestLimits& limits,
                          ChatRequest* request) {
  if (key == "prompt") return ReadPrompt(value, &*request->raw);
  if (key == "suffix") {
    std::string suffix;
    WEIR_TRY(ReadText(value, key, &suffix));
    if (!suffix.empty()) request->raw->suffix = std::move(suffix);
    return absl::OkStatus();
  }
  if (key == "echo") return ReadBool(value, key, &request->echo);
  if (key == "logprobs") {
    int64_t top = 0;
    WEIR_TRY(ReadInteger(value, key, 0, limits.top_logprobs_max, &top));
    request->logprobs = {true, static_cast<int>(top)};
    return absl::OkStatus();
  }
  if (key == "best_of") {
    int64_t best_of = 1;
    WEIR_TRY(ReadInteger(value, key, 1, limits.n_max, &best_of));
    if (best_of != 1) return BadField(key, "must be 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatRequest> ParseCompletions(std::string_view body, const RequestLimits& limits) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const JsonObject object, ParseBody(body, limits, &parser));
  ChatRequest request;
  request.api = Api::kCompletions;
  request.raw.emplace();
  request.conversation.thinking.enabled = false;
  bool prompt_given = false;
  bool stream_options_given = false;
  for (const auto field : object) {
    WEIR_ASSIGN(const bool common, ReadCommonField(field.key, field.value, limits, &request));
    if (field.value.is_null()) continue;
    if (field.key == "prompt") prompt_given = true;
    if (field.key == "stream_options") stream_options_given = true;
    if (!common) WEIR_TRY(ReadOwnField(field.key, field.value, limits, &request));
  }
  WEIR_TRY(CheckCommonFields(stream_options_given, &request));
  if (!prompt_given) return BadField("prompt", "is required");
  if (request.echo && request.logprobs.enabled) {
    return BadField("echo", "together with `logprobs` is not supported");
  }
  if (request.raw->suffix && !std::holds_alternative<std::string>(request.raw->prompt)) {
    return BadField("suffix", "needs a text prompt");
  }
  return request;
}

}  // namespace weir::codec
