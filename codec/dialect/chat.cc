// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/chat.h"

#include <optional>

#include "base/stdx/status.h"
#include "codec/dialect/chat_messages.h"
#include "codec/dialect/common_fields.h"

namespace weir::codec {
namespace {

// What was said about thinking, which two fields decide together.
struct ThinkingFields {
  std::optional<bool> enabled;  // `thinking.type`
  std::optional<bool> by_effort;
};

absl::Status ReadThinking(JsonValue value, ThinkingFields* fields, Thinking* thinking) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "thinking"));
  for (const auto field : object) {
    if (field.value.is_null()) continue;
    if (field.key == "type") {
      std::string_view type;
      const bool text = field.value.get(type) == simdjson::SUCCESS;
      if (!text || (type != "enabled" && type != "adaptive" && type != "disabled")) {
        return BadField("thinking.type", "must be \"enabled\", \"adaptive\" or \"disabled\"");
      }
      fields->enabled = type != "disabled";
    } else if (field.key == "budget_tokens") {
      int64_t budget = 0;
      WEIR_TRY(ReadInteger(field.value, "thinking.budget_tokens", 0, INT64_MAX, &budget));
      thinking->budget_tokens = static_cast<uint64_t>(budget);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadEffort(JsonValue value, ThinkingFields* fields, Thinking* thinking) {
  std::string_view effort;
  if (value.get(effort) != simdjson::SUCCESS) {
    return BadField("reasoning_effort", "must be a string");
  }
  if (effort == "none") {
    fields->by_effort = false;
    return absl::OkStatus();
  }
  if (effort == "minimal" || effort == "low") {
    thinking->effort = Effort::kLow;
  } else if (effort == "medium") {
    thinking->effort = Effort::kMedium;
  } else if (effort == "high") {
    thinking->effort = Effort::kHigh;
  } else if (effort == "xhigh") {
    thinking->effort = Effort::kXhigh;
  } else if (effort == "max") {
    thinking->effort = Effort::kMax;
  } else {
    return BadField("reasoning_effort",
                    "must be one of none, minimal, low, medium, high, xhigh, max");
  }
  fields->by_effort = true;
  return absl::OkStatus();
}

// A constraint that is not enforced must not be accepted: the client would parse what it gets.
absl::Status ReadFormat(JsonValue value) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "response_format"));
  std::string_view type;
  if (object["type"].get(type) == simdjson::SUCCESS && type == "text") return absl::OkStatus();
  return BadField("response_format.type", "must be \"text\": answers cannot be constrained yet");
}

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
    return ReadEffort(value, &later->thinking, &conversation.thinking);
  } else if (key == "response_format") {
    return ReadFormat(value);
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
  const auto& thinking = later.thinking;
  conversation.thinking.enabled = thinking.enabled.value_or(thinking.by_effort.value_or(true));
  if (conversation.tool_choice == ToolChoice::kRequired && conversation.thinking.enabled) {
    if (thinking.enabled || thinking.by_effort) {
      return BadField("tool_choice", "cannot demand a call while thinking is on");
    }
    conversation.thinking.enabled = false;  // nobody asked for thinking, but for a call
  }
  return absl::OkStatus();
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
