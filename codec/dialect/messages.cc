// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/messages.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/stdx/status.h"
#include "codec/dialect/common_fields.h"
#include "codec/dialect/format_fields.h"
#include "codec/dialect/messages_blocks.h"
#include "codec/dialect/thinking_fields.h"
#include "codec/dialect/tool_fields.h"

namespace weir::codec {
namespace {

// Fields of the OpenAI dialects that mean the same here. The rest of theirs is unknown here, and
// what is unknown is ignored.
constexpr std::string_view kShared[] = {
    "model", "max_tokens", "temperature", "top_p", "top_k",   "stream",
    "seed",  "min_tokens", "ignore_eos",  "min_p", "user_id", "cache_salt"};

// Values that can only be judged once the others are known.
struct Deferred {
  std::optional<JsonValue> system;
  std::optional<JsonValue> messages;
  std::optional<JsonValue> tool_choice;
  ThinkingFields thinking;
};

absl::Status ReadOutputConfig(JsonValue value, ThinkingFields* fields,
                              Conversation* conversation) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "output_config"));
  JsonValue effort;
  if (object["effort"].get(effort) == simdjson::SUCCESS && !effort.is_null()) {
    WEIR_TRY(ReadEffort(effort, "output_config.effort", fields, &conversation->thinking));
  }
  JsonValue format;
  if (object["format"].get(format) != simdjson::SUCCESS || format.is_null()) {
    return absl::OkStatus();
  }
  return ReadFormat(format, "output_config.format", &conversation->constraint);
}

absl::Status ReadMetadata(JsonValue value, const RequestLimits& limits, ChatRequest* request) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "metadata"));
  JsonValue user;
  if (object["user_id"].get(user) != simdjson::SUCCESS || user.is_null()) return absl::OkStatus();
  return ReadName(user, "metadata.user_id", limits.name_bytes_max, &request->user);
}

absl::Status ReadStops(JsonValue value, const RequestLimits& limits, ChatRequest* request) {
  constexpr std::string_view kPath = "stop_sequences";
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, kPath, limits.stops_max));
  size_t index = 0;
  for (const JsonValue item : array) {
    const std::string path = Item(kPath, index++);
    WEIR_TRY(ReadName(item, path, limits.stop_bytes_max, &request->limits.stop.emplace_back()));
    if (request->limits.stop.back().empty()) return BadField(path, "must not be empty");
  }
  return absl::OkStatus();
}

absl::StatusOr<ToolDef> ReadTool(JsonValue value, const std::string& path) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
  ToolDef tool;
  bool schema_given = false;
  for (const auto field : object) {
    if (field.value.is_null()) continue;
    const std::string at = Member(path, field.key);
    if (field.key == "type") {
      std::string type;
      WEIR_TRY(ReadText(field.value, at, &type));
      if (type != "custom") return BadField(at, "must be \"custom\": this server runs no tools");
    } else if (field.key == "name") {
      WEIR_TRY(ReadText(field.value, at, &tool.name));
    } else if (field.key == "description") {
      WEIR_TRY(ReadText(field.value, at, &tool.description));
    } else if (field.key == "input_schema") {
      schema_given = true;
      WEIR_TRY(ReadParameters(field.value, at, &tool));
    } else if (field.key == "strict") {
      WEIR_TRY(ReadBool(field.value, at, &tool.strict));
    }
  }
  WEIR_TRY(CheckToolName(tool.name, Member(path, "name")));
  if (!schema_given) return BadField(Member(path, "input_schema"), "is required");
  return tool;
}

absl::Status ReadTools(JsonValue value, const RequestLimits& limits, Conversation* conversation) {
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, "tools", limits.tools_max));
  std::unordered_set<std::string> names;
  for (const JsonValue item : array) {
    const std::string path = Item("tools", conversation->tools.size());
    WEIR_ASSIGN(ToolDef tool, ReadTool(item, path));
    if (!names.insert(tool.name).second) {
      return BadField(Member(path, "name"), "repeats another tool's name");
    }
    conversation->tools.push_back(std::move(tool));
  }
  return absl::OkStatus();
}

absl::Status ApplyChoice(JsonValue value, const ThinkingFields& thinking,
                         Conversation* conversation) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "tool_choice"));
  std::string type;
  WEIR_TRY(ReadRequiredText(object, "type", "tool_choice", &type));
  JsonValue alone;
  if (object["disable_parallel_tool_use"].get(alone) == simdjson::SUCCESS && !alone.is_null()) {
    bool disabled = false;
    WEIR_TRY(ReadBool(alone, "tool_choice.disable_parallel_tool_use", &disabled));
    conversation->parallel_tool_calls = !disabled;
  }
  if (type == "auto") return absl::OkStatus();
  if (type == "none") {
    conversation->tools.clear();
    return absl::OkStatus();
  }
  if (type == "any") {
    if (conversation->tools.empty()) return BadField("tool_choice", "needs `tools`");
    // A model that thinks first cannot be held to a call.
    if (thinking.enabled == false) conversation->tool_choice = ToolChoice::kRequired;
    return absl::OkStatus();
  }
  if (type != "tool") {
    return BadField("tool_choice.type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
  }
  std::string name;
  WEIR_TRY(ReadRequiredText(object, "name", "tool_choice", &name));
  return ChooseTool(name, "tool_choice.name", conversation);
}

absl::Status ReadOwnField(std::string_view key, JsonValue value, const RequestLimits& limits,
                          ChatRequest* request, Deferred* later) {
  Conversation& conversation = request->conversation;
  if (key == "system") {
    later->system = value;
  } else if (key == "messages") {
    later->messages = value;
  } else if (key == "tools") {
    conversation.tools.clear();
    return ReadTools(value, limits, &conversation);
  } else if (key == "tool_choice") {
    later->tool_choice = value;
  } else if (key == "thinking") {
    return ReadThinking(value, &later->thinking, &conversation.thinking);
  } else if (key == "output_config") {
    return ReadOutputConfig(value, &later->thinking, &conversation);
  } else if (key == "stop_sequences") {
    request->limits.stop.clear();
    return ReadStops(value, limits, request);
  } else if (key == "metadata") {
    return ReadMetadata(value, limits, request);
  }
  return absl::OkStatus();
}

absl::Status Settle(const Deferred& later, const RequestLimits& limits, ChatRequest* request) {
  if (!later.messages) return BadField("messages", "is required");
  Conversation& conversation = request->conversation;
  if (later.system) WEIR_TRY(ReadSystem(*later.system, &conversation.messages));
  WEIR_TRY(ReadTurns(*later.messages, limits, &conversation.messages));
  WEIR_TRY(CheckCommonFields(/*stream_options_given=*/false, request));
  if (later.tool_choice) {
    WEIR_TRY(ApplyChoice(*later.tool_choice, later.thinking, &conversation));
  }
  return SettleThinking(later.thinking, &conversation);
}

}  // namespace

absl::StatusOr<ChatRequest> ParseMessages(std::string_view body, const RequestLimits& limits) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const JsonObject object, ParseBody(body, limits, &parser));
  ChatRequest request;
  request.api = Api::kMessages;
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
