// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/tool_fields.h"

#include <algorithm>
#include <utility>

#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

constexpr size_t kToolNameMax = 128;

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kToolNameMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

}  // namespace

absl::Status ReadRequiredText(const JsonObject& object, std::string_view key,
                              std::string_view path, std::string* out) {
  JsonValue value;
  if (object[key].get(value) != simdjson::SUCCESS) {
    return BadField(Member(path, key), "is required");
  }
  return ReadText(value, Member(path, key), out);
}

absl::Status CheckToolName(std::string_view name, std::string_view path) {
  if (IsToolName(name)) return absl::OkStatus();
  return BadField(path, "must have 1 to 128 characters of [A-Za-z0-9_-]");
}

absl::Status ReadParameters(JsonValue value, std::string_view path, ToolDef* tool) {
  WEIR_ASSIGN(const JsonObject schema, ReadObject(value, path));
  std::string_view type;
  if (schema.size() != 0 &&
      (schema["type"].get(type) != simdjson::SUCCESS || type != "object")) {
    return BadField(Member(path, "type"), "must be \"object\"");
  }
  WEIR_ASSIGN(tool->parameters, NormalJson(std::string(simdjson::minify(value))));
  return absl::OkStatus();
}

absl::Status ApplyChoiceWord(JsonValue value, Conversation* conversation) {
  constexpr std::string_view kPath = "tool_choice";
  std::string word;
  WEIR_TRY(ReadText(value, kPath, &word));
  if (word == "none") {
    conversation->tools.clear();
  } else if (word == "required") {
    if (conversation->tools.empty()) return BadField(kPath, "needs `tools`");
    conversation->tool_choice = ToolChoice::kRequired;
  } else if (word != "auto") {
    return BadField(kPath, "must be \"none\", \"auto\", \"required\" or a function");
  }
  return absl::OkStatus();
}

absl::Status ChooseTool(std::string_view name, std::string_view path, Conversation* conversation) {
  auto& tools = conversation->tools;
  const auto named = std::find_if(tools.begin(), tools.end(),
                                  [&](const ToolDef& tool) { return tool.name == name; });
  if (named == tools.end()) return BadField(path, "names no tool of this request");
  ToolDef only = std::move(*named);
  tools.clear();
  tools.push_back(std::move(only));
  conversation->tool_choice = ToolChoice::kRequired;
  return absl::OkStatus();
}

}  // namespace weir::codec
