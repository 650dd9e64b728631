// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/chat.h"

#include <optional>

#include "base/stdx/status.h"
#include "codec/dialect/chat_messages.h"
#include "codec/dialect/common_fields.h"
#include "codec/dialect/format_fields.h"
#include "codec/dialect/thinking_fields.h"

namespace weir::codec {
namespace {

// Fields of the other API that would change the answer if they were honoured.
absl::Status RefuseOfCompletions(std::string_view key, JsonValue value,
                                 const RequestLimits& limits) {
  const auto refused = [key] {
    return BadField(key, "is a field of /v1/completions and not supported here");
  };
  if (key == "echo") {
    bool echo = false;
    WEIR_TRY(ReadBool(value, key, &echo));
    return echo ? refused() : absl::OkStatus();
  }
  if (key == "best_of") {
    int64_t best_of = 1;
    WEIR_TRY(ReadInteger(value, key, 1, limits.n_max, &best_of));
    return best_of != 1 ? refused() : absl::OkStatus();
  }
  return key == "suffix" || key == "prompt" ? refused() : absl::OkStatus();
}

// Values that can only be judged once the others are known.
struct Deferred {
  std::optional<JsonValue> tool_choice;
  std::optional<int64_t> max_completion_tokens;
  std::optional<int64_t> top_logprobs;
  bool messages_given = false;
  bool stream_options_given = false;
  ThinkingFields thinking;
};

absl::Status ReadOwnField(std::string_view key, JsonValue value, const RequestLimits& limits,
                          ChatRequest* request, Deferred* later) {
  Conversation& conversation = request->conversation;
  if (key == "messages") {
    later->messages_given = true;
    WEIR_ASSIGN(conversation.messages, ReadMessages(value, limits));
  } else if (key == "tools") {
    WEIR_ASSIGN(conversation.tools, ReadTools(value, limits));
  } else if (key == "tool_choice") {
    later->tool_choice = value;
  } else if (key == "parallel_tool_calls") {
    return ReadBool(value, key, &conversation.parallel_tool_calls);
  } else if (key == "thinking") {
    return ReadThinking(value, &later->thinking, &conversation.thinking);
  } else if (key == "reasoning_effort") {
    return ReadEffort(value, key, &later->thinking, &conversation.thinking);
  } else if (key == "response_format") {
    return ReadFormat(value, key, &conversation.constraint);
  } else if (key == "logprobs") {
    return ReadBool(value, key, &request->logprobs.enabled);
  } else if (key == "top_logprobs") {
    return ReadInteger(value, key, 0, limits.top_logprobs_max, &later->top_logprobs.emplace());
  } else if (key == "max_completion_tokens") {
    return ReadInteger(value, key, 1, INT32_MAX, &later->max_completion_tokens.emplace());
  } else {
    return RefuseOfCompletions(key, value, limits);
  }
  return absl::OkStatus();
}

absl::Status Settle(const Deferred& later, ChatRequest* request) {
  if (!later.messages_given) return BadField("messages", "is required");
  if (later.max_completion_tokens) {
    request->limits.max_tokens = static_cast<uint32_t>(*later.max_completion_tokens);
  }
  WEIR_TRY(CheckCommonFields(later.stream_options_given, request));
  if (later.top_logprobs) {
    if (!request->logprobs.enabled && *later.top_logprobs > 0) {
      return BadField("top_logprobs", "needs `logprobs` to be true");
    }
    request->logprobs.top = static_cast<int>(*later.top_logprobs);
  }
  Conversation& conversation = request->conversation;
  if (later.tool_choice) WEIR_TRY(ApplyToolChoice(*later.tool_choice, &conversation));
  return SettleThinking(later.thinking, &conversation);
}

}  // namespace

absl::StatusOr<ChatRequest> ParseChat(std::string_view body, const RequestLimits& limits) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const JsonObject object, ParseBody(body, limits, &parser));
  ChatRequest request;
  request.api = Api::kChat;
  Deferred later;
  for (const auto field : object) {
    WEIR_ASSIGN(const bool common, ReadCommonField(field.key, field.value, limits, &request));
    if (field.value.is_null()) continue;
    if (field.key == "stream_options") later.stream_options_given = true;
    if (!common) WEIR_TRY(ReadOwnField(field.key, field.value, limits, &request, &later));
  }
  WEIR_TRY(Settle(later, &request));
  return request;
}

}  // namespace weir::codec
