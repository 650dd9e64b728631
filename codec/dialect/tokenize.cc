// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/tokenize.h"

#include <optional>

#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"
#include "codec/dialect/chat.h"
#include "codec/dialect/field_reader.h"

namespace weir::codec {
namespace {

std::optional<JsonValue> Find(const JsonObject& object, std::string_view key) {
  JsonValue value;
  if (object[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<TokenizeRequest> ParseTokenize(std::string_view body, const RequestLimits& limits) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const JsonObject object, ParseBody(body, limits, &parser));
  TokenizeRequest read;
  const auto prompt = Find(object, "prompt");
  const auto content = Find(object, "content");
  if (Find(object, "messages")) {
    WEIR_ASSIGN(read.request, ParseChat(body, limits));
  } else if (prompt || content) {
    read.request.api = Api::kCompletions;
    std::string text;
    WEIR_TRY(ReadText(prompt ? *prompt : *content, prompt ? "prompt" : "content", &text));
    read.request.raw.emplace().prompt = std::move(text);
    read.special = prompt.has_value();  // each name with its server's default
    if (const auto model = Find(object, "model")) {
      WEIR_TRY(ReadName(*model, "model", limits.name_bytes_max, &read.request.model));
    }
  } else {
    return BadField("prompt", "is required, or `messages`, or `content`");
  }
  for (const char* key : {"add_special_tokens", "add_special"}) {
    if (const auto value = Find(object, key)) WEIR_TRY(ReadBool(*value, key, &read.special));
  }
  for (const char* key : {"return_token_strs", "with_pieces"}) {
    if (const auto value = Find(object, key)) WEIR_TRY(ReadBool(*value, key, &read.spellings));
  }
  return read;
}

absl::StatusOr<DetokenizeRequest> ParseDetokenize(std::string_view body,
                                                  const RequestLimits& limits) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const JsonObject object, ParseBody(body, limits, &parser));
  DetokenizeRequest read;
  if (const auto model = Find(object, "model")) {
    WEIR_TRY(ReadName(*model, "model", limits.name_bytes_max, &read.model));
  }
  const auto tokens = Find(object, "tokens");
  if (!tokens) return BadField("tokens", "is required");
  JsonArray array;
  if (tokens->get(array) != simdjson::SUCCESS) return BadField("tokens", "must be an array");
  for (const JsonValue item : array) {
    int64_t id = 0;
    WEIR_TRY(ReadInteger(item, Item("tokens", read.tokens.size()), 0, INT32_MAX, &id));
    read.tokens.push_back(static_cast<TokenId>(id));
  }
  return read;
}

std::string TokenizeBody(std::span<const TokenId> ids, std::span<const std::string> spellings,
                         uint64_t tokens_max) {
  std::string body = R"({"count":)";
  AppendJsonNumber(static_cast<int64_t>(ids.size()), &body);
  if (tokens_max > 0) {
    body += R"(,"max_model_len":)";
    AppendJsonNumber(static_cast<int64_t>(tokens_max), &body);
  }
  body += R"(,"tokens":[)";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) body.push_back(',');
    AppendJsonNumber(int64_t{ids[i]}, &body);
  }
  body.push_back(']');
  if (!spellings.empty()) {
    body += R"(,"token_strs":[)";
    for (size_t i = 0; i < spellings.size(); ++i) {
      if (i > 0) body.push_back(',');
      AppendJsonString(spellings[i], &body);
    }
    body.push_back(']');
  }
  body.push_back('}');
  return body;
}

std::string TextBody(std::string_view text) {
  std::string body = R"({"prompt":)";
  AppendJsonString(text, &body);
  body += R"(,"content":)";
  AppendJsonString(text, &body);
  body.push_back('}');
  return body;
}

}  // namespace weir::codec
