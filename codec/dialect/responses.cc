// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/responses.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/stdx/status.h"
#include "codec/dialect/common_fields.h"
#include "codec/dialect/format_fields.h"
#include "codec/dialect/responses_items.h"
#include "codec/dialect/thinking_fields.h"
#include "codec/dialect/tool_fields.h"

namespace weir::codec {
namespace {

// Fields of Chat Completions that mean the same here. The rest of its fields is unknown here, and
// what is unknown is ignored.
constexpr std::string_view kShared[] = {
    "model",      "temperature", "top_p",   "top_k",      "min_p", "stream",
    "seed",       "min_tokens",  "user",    "ignore_eos", "user_id", "cache_salt",
    "logit_bias", "presence_penalty", "frequency_penalty", "repetition_penalty"};

// Refer to what a server would have to keep.
constexpr std::string_view kStored[] = {"previous_response_id", "conversation", "prompt"};

// Values that can only be judged once the others are known.
struct Deferred {
  std::optional<JsonValue> instructions;
  std::optional<JsonValue> input;
  std::optional<JsonValue> tool_choice;
  std::optional<int64_t> top_logprobs;
  ThinkingFields thinking;
};

absl::Status ReadReasoning(JsonValue value, Deferred* later, Thinking* thinking) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "reasoning"));
  JsonValue effort;
  if (object["effort"].get(effort) != simdjson::SUCCESS || effort.is_null()) {
    return absl::OkStatus();
  }
  return ReadEffort(effort, "reasoning.effort", &later->thinking, thinking);
}

absl::Status ReadTextOptions(JsonValue value, Constraint* constraint) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "text"));
  JsonValue format;
  if (object["format"].get(format) != simdjson::SUCCESS || format.is_null()) {
    return absl::OkStatus();
  }
  return ReadFormat(format, "text.format", constraint);
}

// What an answer is to tell beyond its text; names of what is never there are ignored.
absl::Status ReadInclude(JsonValue value, bool* logprobs) {
  constexpr std::string_view kPath = "include";
  constexpr size_t kIncludeMax = 64;
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, kPath, kIncludeMax));
  size_t index = 0;
  for (const JsonValue item : array) {
    std::string name;
    WEIR_TRY(ReadText(item, Item(kPath, index++), &name));
    if (name == "message.output_text.logprobs") *logprobs = true;
  }
  return absl::OkStatus();
}

absl::Status ApplyChoice(JsonValue value, Conversation* conversation) {
  if (value.is_string()) return ApplyChoiceWord(value, conversation);
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "tool_choice"));
  std::string type;
  std::string name;
  WEIR_TRY(ReadRequiredText(object, "type", "tool_choice", &type));
  if (type != "function" && type != "custom") {
    return BadField("tool_choice.type", "must be \"function\" or \"custom\"");
  }
  WEIR_TRY(ReadRequiredText(object, "name", "tool_choice", &name));
  return ChooseTool(name, "tool_choice.name", conversation);
}

absl::Status ReadOwnField(std::string_view key, JsonValue value, const RequestLimits& limits,
                          ChatRequest* request, Deferred* later) {
  Conversation& conversation = request->conversation;
  if (key == "instructions") {
    later->instructions = value;
  } else if (key == "input") {
    later->input = value;
  } else if (key == "tools") {
    conversation.tools.clear();
    return ReadResponsesTools(value, limits, &conversation.tools);
  } else if (key == "tool_choice") {
    later->tool_choice = value;
  } else if (key == "parallel_tool_calls") {
    return ReadBool(value, key, &conversation.parallel_tool_calls);
  } else if (key == "reasoning") {
    return ReadReasoning(value, later, &conversation.thinking);
  } else if (key == "text") {
    return ReadTextOptions(value, &conversation.constraint);
  } else if (key == "max_output_tokens") {
    int64_t number = 0;
    WEIR_TRY(ReadInteger(value, key, 1, INT32_MAX, &number));
    request->limits.max_tokens = static_cast<uint32_t>(number);
  } else if (key == "include") {
    return ReadInclude(value, &request->logprobs.enabled);
  } else if (key == "top_logprobs") {
    return ReadInteger(value, key, 0, limits.top_logprobs_max, &later->top_logprobs.emplace());
  } else if (key == "background") {
    bool background = false;
    WEIR_TRY(ReadBool(value, key, &background));
    if (background) return BadField(key, "is not supported: nothing is stored here");
  } else if (std::find(std::begin(kStored), std::end(kStored), key) != std::end(kStored)) {
    return BadField(key, "is not supported: nothing is stored here, send the whole conversation");
  }
  return absl::OkStatus();
}

absl::Status Settle(const Deferred& later, const RequestLimits& limits, ChatRequest* request) {
  Conversation& conversation = request->conversation;
  auto& messages = conversation.messages;
  if (!later.instructions && !later.input) return BadField("input", "is required");
  if (later.instructions) {
    TextPart part;
    WEIR_TRY(ReadText(*later.instructions, "instructions", &part.text));
    messages.emplace_back().author = Author::kSystem;
    messages.back().parts.emplace_back(std::move(part));
  }
  if (later.input) WEIR_TRY(ReadInput(*later.input, limits, &messages));
  if (messages.empty()) return BadField("input", "has no item that this server knows");
  WEIR_TRY(CheckCommonFields(/*stream_options_given=*/false, request));
  if (later.top_logprobs.value_or(0) > 0) {
    request->logprobs = {true, static_cast<int>(*later.top_logprobs)};
  }
  if (later.tool_choice) WEIR_TRY(ApplyChoice(*later.tool_choice, &conversation));
  return SettleThinking(later.thinking, &conversation);
}

}  // namespace

absl::StatusOr<ChatRequest> ParseResponses(std::string_view body, const RequestLimits& limits) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const JsonObject object, ParseBody(body, limits, &parser));
  ChatRequest request;
  request.api = Api::kResponses;
  Deferred later;
  for (const auto field : object) {
    if (std::find(std::begin(kShared), std::end(kShared), field.key) != std::end(kShared)) {
      WEIR_TRY(ReadCommonField(field.key, field.value, limits, &request).status());
    } else if (!field.value.is_null()) {
      WEIR_TRY(ReadOwnField(field.key, field.value, limits, &request, &later));
    }
  }
  WEIR_TRY(Settle(later, limits, &request));
  return request;
}

}  // namespace weir::codec
