// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/responses_items.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"
#include "codec/dialect/tool_fields.h"

namespace weir::codec {
namespace {

constexpr size_t kPartsMax = 4096;
constexpr size_t kUrlMax = 8192;

absl::StatusOr<Part> ReadPart(JsonValue value, const std::string& path) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
  std::string type;
  WEIR_TRY(ReadRequiredText(object, "type", path, &type));
  TextPart part;
  if (type == "input_text" || type == "output_text" || type == "text" || type == "summary_text" ||
      type == "reasoning_text") {
    WEIR_TRY(ReadRequiredText(object, "text", path, &part.text));
    return Part(std::move(part));
  }
  if (type == "refusal") {
    WEIR_TRY(ReadRequiredText(object, "refusal", path, &part.text));
    return Part(std::move(part));
  }
  if (type != "input_image") {
    return BadField(Member(path, "type"), "must be input_text, output_text or input_image");
  }
  ImagePart image;
  WEIR_TRY(ReadRequiredText(object, "image_url", path, &image.source));
  const bool data = image.source.rfind("data:", 0) == 0 &&
                    image.source.find("base64,") != std::string::npos;
  const bool http = image.source.rfind("http", 0) == 0 && image.source.size() <= kUrlMax;
  if (!data && !http) {
    return BadField(Member(path, "image_url"),
                    "must be a base64 data URL or an http(s) URL of at most 8192 bytes");
  }
  return Part(std::move(image));
}

absl::Status ReadParts(JsonValue value, const std::string& path, std::vector<Part>* parts) {
  if (value.is_string()) {
    TextPart part;
    WEIR_TRY(ReadText(value, path, &part.text));
    parts->emplace_back(std::move(part));
    return absl::OkStatus();
  }
  if (!value.is_array()) return BadField(path, "must be a string or an array of parts");
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, path, kPartsMax));
  size_t index = 0;
  for (const JsonValue item : array) {
    WEIR_ASSIGN(Part part, ReadPart(item, Item(path, index++)));
    parts->push_back(std::move(part));
  }
  return absl::OkStatus();
}

// Builds turns from items. Calls and results may come in any order, as long as each call comes
// before its result and nothing else comes between.
class Items {
 public:
  explicit Items(std::vector<Message>* messages) : messages_(messages) {}

  absl::Status Read(JsonValue value, const std::string& path) {
    WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
    std::string type = "message";  // the one kind that may go without
    JsonValue given;
    if (object["type"].get(given) == simdjson::SUCCESS) {
      WEIR_TRY(ReadText(given, Member(path, "type"), &type));
    }
    if (type == "function_call" || type == "custom_tool_call") {
      return ReadCall(object, path, type == "custom_tool_call");
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return ReadResult(object, path);
    }
    if (type == "item_reference") {
      return BadField(path, "names a stored item, but nothing is stored here; send the item itself "
                            "(clients do so with `store` false)");
    }
    if (type != "message" && type != "reasoning") return absl::OkStatus();
    WEIR_TRY(CloseCalls());
    return type == "message" ? ReadMessage(object, path) : ReadReasoning(object, path);
  }

  absl::Status End() { return CloseCalls(); }

 private:
  absl::Status ReadMessage(const JsonObject& object, const std::string& path) {
    std::string role;
    WEIR_TRY(ReadRequiredText(object, "role", path, &role));
    JsonValue content;
    if (object["content"].get(content) != simdjson::SUCCESS) {
      return BadField(Member(path, "content"), "is required");
    }
    Message message;
    WEIR_TRY(ReadParts(content, Member(path, "content"), &message.parts));
    if (role == "assistant") {
      Message* turn = AssistantTurn();
      for (Part& part : message.parts) turn->parts.push_back(std::move(part));
      return absl::OkStatus();
    }
    if (role != "system" && role != "user" && role != "developer") {
      return BadField(Member(path, "role"), "must be one of system, developer, user, assistant");
    }
    message.author = role == "system" ? Author::kSystem : Author::kUser;
    reasoning_.reset();
    messages_->push_back(std::move(message));
    return absl::OkStatus();
  }

  absl::Status ReadReasoning(const JsonObject& object, const std::string& path) {
    JsonValue content;
    if (object["content"].get(content) != simdjson::SUCCESS || content.is_null()) {
      return absl::OkStatus();
    }
    std::vector<Part> parts;
    WEIR_TRY(ReadParts(content, Member(path, "content"), &parts));
    std::string& text = reasoning_.emplace();
    for (const Part& part : parts) {
      const auto* said = std::get_if<TextPart>(&part);
      if (said == nullptr) continue;
      if (!text.empty()) text += "\n";
      text += said->text;
    }
    return absl::OkStatus();
  }

  // The turn that the next text or call of the assistant's belongs to.
  Message* AssistantTurn() {
    const bool goes_on = !messages_->empty() && !reasoning_ &&
                         messages_->back().author == Author::kAssistant &&
                         messages_->back().calls.empty();
    if (!goes_on) {
      messages_->emplace_back().author = Author::kAssistant;
      messages_->back().reasoning = std::exchange(reasoning_, std::nullopt);
    }
    return &messages_->back();
  }

  absl::Status ReadCall(const JsonObject& object, const std::string& path, bool freeform) {
    ToolCall call;
    WEIR_TRY(ReadRequiredText(object, "call_id", path, &call.id));
    WEIR_TRY(ReadRequiredText(object, "name", path, &call.name));
    const std::string id_path = Member(path, "call_id");
    if (call.id.empty()) return BadField(id_path, "must not be empty");
    if (!known_.insert(call.id).second) return BadField(id_path, "repeats another call's id");
    std::string_view name_space;
    if (object["namespace"].get(name_space) == simdjson::SUCCESS && !name_space.empty()) {
      call.name = std::string(name_space) + "::" + call.name;
    }
    if (freeform) {
      std::string input;
      WEIR_TRY(ReadRequiredText(object, "input", path, &input));
      call.arguments = "{\"input\": ";
      AppendJsonString(input, &call.arguments);
      call.arguments += "}";
    } else {
      WEIR_TRY(ReadRequiredText(object, "arguments", path, &call.arguments));
    }
    if (!std::exchange(calling_, true)) {
      turn_ = std::move(*AssistantTurn());
      messages_->pop_back();
    }
    if (turn_.calls.size() == kCallsMax) return BadField(path, "is one call too many");
    open_.insert(call.id);
    turn_.calls.push_back(std::move(call));
    return absl::OkStatus();
  }

  absl::Status ReadResult(const JsonObject& object, const std::string& path) {
    Message result;
    result.author = Author::kTool;
    WEIR_TRY(ReadRequiredText(object, "call_id", path, &result.tool_call_id));
    if (open_.erase(result.tool_call_id) == 0) {
      return BadField(Member(path, "call_id"), "names no open call before it");
    }
    JsonValue output;
    if (object["output"].get(output) != simdjson::SUCCESS) {
      return BadField(Member(path, "output"), "is required");
    }
    WEIR_TRY(ReadParts(output, Member(path, "output"), &result.parts));
    results_.push_back(std::move(result));
    return absl::OkStatus();
  }

  // The turn of the calls, and their results in the order of the calls.
  absl::Status CloseCalls() {
    if (!std::exchange(calling_, false)) return absl::OkStatus();
    if (!open_.empty()) {
      return BadField("input", "has a call without its output: " + *open_.begin());
    }
    const auto place = [this](const Message& result) {
      const auto& calls = turn_.calls;
      return std::find_if(calls.begin(), calls.end(), [&](const ToolCall& call) {
        return call.id == result.tool_call_id;
      });
    };
    std::stable_sort(results_.begin(), results_.end(), [&](const Message& a, const Message& b) {
      return place(a) < place(b);
    });
    messages_->push_back(std::exchange(turn_, Message()));
    for (Message& result : results_) messages_->push_back(std::move(result));
    results_.clear();
    return absl::OkStatus();
  }

  std::vector<Message>* const messages_;
  std::optional<std::string> reasoning_;  // of the assistant's next turn
  bool calling_ = false;                  // calls and results are being read
  Message turn_;                          // whose calls those are
  std::vector<Message> results_;
  std::unordered_set<std::string> open_;
  std::unordered_set<std::string> known_;
};

absl::StatusOr<ToolDef> ReadFunction(const JsonObject& object, const std::string& path) {
  ToolDef tool;
  tool.parameters = "{}";
  WEIR_TRY(ReadRequiredText(object, "name", path, &tool.name));
  WEIR_TRY(CheckToolName(tool.name, Member(path, "name")));
  for (const auto field : object) {
    if (field.value.is_null()) continue;
    const std::string at = Member(path, field.key);
    if (field.key == "description") WEIR_TRY(ReadText(field.value, at, &tool.description));
    if (field.key == "parameters") WEIR_TRY(ReadParameters(field.value, at, &tool));
    if (field.key == "strict") WEIR_TRY(ReadBool(field.value, at, &tool.strict));
  }
  return tool;
}

class Tools {
 public:
  Tools(size_t count_max, std::vector<ToolDef>* tools) : count_max_(count_max), tools_(tools) {}

  absl::Status Read(JsonValue value, const std::string& path) {
    WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
    std::string type;
    WEIR_TRY(ReadRequiredText(object, "type", path, &type));
    if (type == "function") {
      WEIR_ASSIGN(ToolDef tool, ReadFunction(object, path));
      return Add(std::move(tool), path);
    }
    if (type == "namespace") return ReadNamespace(object, path);
    if (type == "custom") return ReadCustom(object, path);
    if (type.rfind("web_search", 0) == 0) return absl::OkStatus();
    return BadField(Member(path, "type"), "must be \"function\", \"namespace\" or \"custom\"");
  }

 private:
  absl::Status Add(ToolDef tool, const std::string& path) {
    if (!names_.insert(tool.name).second) {
      return BadField(Member(path, "name"), "repeats another tool's name");
    }
    if (tools_->size() == count_max_) return BadField("tools", "has too many entries");
    tools_->push_back(std::move(tool));
    return absl::OkStatus();
  }

  absl::Status ReadNamespace(const JsonObject& object, const std::string& path) {
    std::string name;
    std::string description;
    WEIR_TRY(ReadRequiredText(object, "name", path, &name));
    WEIR_TRY(CheckToolName(name, Member(path, "name")));
    JsonValue value;
    if (object["description"].get(value) == simdjson::SUCCESS && !value.is_null()) {
      WEIR_TRY(ReadText(value, Member(path, "description"), &description));
    }
    const std::string at = Member(path, "tools");
    if (object["tools"].get(value) != simdjson::SUCCESS) return BadField(at, "is required");
    WEIR_ASSIGN(const JsonArray array, ReadArray(value, at, count_max_));
    size_t index = 0;
    for (const JsonValue item : array) {
      const std::string item_path = Item(at, index++);
      WEIR_ASSIGN(const JsonObject function, ReadObject(item, item_path));
      std::string type;
      WEIR_TRY(ReadRequiredText(function, "type", item_path, &type));
      if (type != "function") return BadField(Member(item_path, "type"), "must be \"function\"");
      WEIR_ASSIGN(ToolDef tool, ReadFunction(function, item_path));
      tool.name = Free(name + "::" + tool.name);
      if (!description.empty()) tool.description = description + "\n" + tool.description;
      WEIR_TRY(Add(std::move(tool), item_path));
    }
    return absl::OkStatus();
  }

  // Two namespaces may meet in one name; a number keeps them apart.
  std::string Free(const std::string& name) const {
    std::string free = name;
    for (int i = 1; names_.count(free) > 0; ++i) free = name + "_" + std::to_string(i);
    return free;
  }

  absl::Status ReadCustom(const JsonObject& object, const std::string& path) {
    ToolDef tool;
    tool.freeform = true;
    WEIR_TRY(ReadRequiredText(object, "name", path, &tool.name));
    if (tool.name != "apply_patch") {
      return BadField(Member(path, "name"), "must be \"apply_patch\", the one freeform tool");
    }
    JsonValue value;
    if (object["description"].get(value) == simdjson::SUCCESS && !value.is_null()) {
      WEIR_TRY(ReadText(value, Member(path, "description"), &tool.description));
    }
    if (tool.description.empty()) {
      tool.description =
          "Edits files. `input` is one patch as plain text, from the line \"*** Begin Patch\" to "
          "the line \"*** End Patch\".";
    }
    tool.parameters =
        R"({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]})";
    return Add(std::move(tool), path);
  }

  const size_t count_max_;
  std::vector<ToolDef>* const tools_;
  std::unordered_set<std::string> names_;
};

}  // namespace

absl::Status ReadInput(JsonValue value, const RequestLimits& limits,
                       std::vector<Message>* messages) {
  if (value.is_string()) {
    return ReadParts(value, "input", &messages->emplace_back().parts);
  }
  if (!value.is_array()) return BadField("input", "must be a string or an array of items");
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, "input", limits.messages_max));
  if (array.size() == 0) return BadField("input", "must not be empty");
  Items items(messages);
  size_t index = 0;
  for (const JsonValue item : array) WEIR_TRY(items.Read(item, Item("input", index++)));
  return items.End();
}

absl::Status ReadResponsesTools(JsonValue value, const RequestLimits& limits,
                                std::vector<ToolDef>* tools) {
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, "tools", limits.tools_max));
  Tools reader(limits.tools_max, tools);
  size_t index = 0;
  for (const JsonValue item : array) WEIR_TRY(reader.Read(item, Item("tools", index++)));
  return absl::OkStatus();
}

}  // namespace weir::codec
