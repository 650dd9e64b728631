// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/chat_messages.h"

#include <optional>
#include <string>
#include <unordered_set>

#include "base/stdx/status.h"
#include "codec/dialect/tool_fields.h"

namespace weir::codec {
namespace {

constexpr size_t kUrlMax = 8192;
constexpr size_t kPartsMax = 4096;

std::optional<Author> AuthorOf(std::string_view role, const RequestLimits& limits) {
  if (role == "system") return Author::kSystem;
  if (role == "developer" && limits.developer_role) return Author::kSystem;
  if (role == "user") return Author::kUser;
  if (role == "assistant") return Author::kAssistant;
  if (role == "tool") return Author::kTool;
  if (role == "latest_reminder") return Author::kReminder;
  return std::nullopt;
}

absl::Status CheckSource(const ImagePart& image, std::string_view path) {
  const bool data = image.source.rfind("data:", 0) == 0 &&
                    image.source.find("base64,") != std::string::npos;
  const bool http = image.source.rfind("http", 0) == 0 && image.source.size() <= kUrlMax;
  if (data || http) return absl::OkStatus();
  return BadField(path, "must be a base64 data URL or an http(s) URL of at most 8192 bytes");
}

// A file is an image by another name; nothing is stored here that an id could name.
absl::StatusOr<Part> ReadFile(JsonValue part, std::string_view path) {
  JsonValue body;
  const std::string at = Member(path, "file");
  if (part["file"].get(body) != simdjson::SUCCESS) return BadField(at, "is required");
  WEIR_ASSIGN(const JsonObject object, ReadObject(body, at));
  JsonValue id;
  if (object["file_id"].get(id) == simdjson::SUCCESS && !id.is_null()) {
    return BadField(Member(at, "file_id"), "is not supported: nothing is stored here");
  }
  ImagePart image;
  WEIR_TRY(ReadRequiredText(object, "file_data", at, &image.source));
  WEIR_TRY(CheckSource(image, Member(at, "file_data")));
  return Part(std::move(image));
}

absl::StatusOr<Part> ReadImage(JsonValue part, std::string_view path) {
  ImagePart image;
  JsonValue body;
  const std::string at = Member(path, "image_url");
  if (part["image_url"].get(body) != simdjson::SUCCESS) return BadField(at, "is required");
  if (body.is_string()) {
    WEIR_TRY(ReadText(body, at, &image.source));
  } else {
    WEIR_ASSIGN(const JsonObject object, ReadObject(body, at));
    JsonValue url;
    if (object["url"].get(url) != simdjson::SUCCESS) {
      return BadField(Member(at, "url"), "is required");
    }
    WEIR_TRY(ReadText(url, Member(at, "url"), &image.source));
    std::string_view detail;
    if (object["detail"].get(detail) == simdjson::SUCCESS) {
      if (detail == "low") image.detail = ImageDetail::kLow;
      if (detail == "high") image.detail = ImageDetail::kHigh;
      if (detail == "original") image.detail = ImageDetail::kOriginal;
    }
  }
  WEIR_TRY(CheckSource(image, at));
  return Part(std::move(image));
}

absl::StatusOr<Part> ReadPart(JsonValue value, std::string_view path, Author author) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
  std::string_view type;
  const std::string type_path = Member(path, "type");
  if (object["type"].get(type) != simdjson::SUCCESS) {
    return BadField(type_path, "must be \"text\", \"image_url\" or \"file\"");
  }
  if (type == "text") {
    JsonValue text;
    const std::string text_path = Member(path, "text");
    if (object["text"].get(text) != simdjson::SUCCESS) return BadField(text_path, "is required");
    TextPart part;
    WEIR_TRY(ReadText(text, text_path, &part.text));
    return Part(std::move(part));
  }
  if (type != "image_url" && type != "file") {
    return BadField(type_path, "must be \"text\", \"image_url\" or \"file\"");
  }
  if (author != Author::kUser && author != Author::kTool) {
    return BadField(path, "may be an image only in user and tool messages");
  }
  return type == "file" ? ReadFile(value, path) : ReadImage(value, path);
}

absl::Status ReadContent(JsonValue value, std::string_view path, Message* message) {
  if (value.is_string()) {
    TextPart part;
    WEIR_TRY(ReadText(value, path, &part.text));
    message->parts.emplace_back(std::move(part));
    return absl::OkStatus();
  }
  if (!value.is_array()) return BadField(path, "must be a string or an array of parts");
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, path, kPartsMax));
  size_t index = 0;
  for (const JsonValue item : array) {
    WEIR_ASSIGN(Part part, ReadPart(item, Item(path, index++), message->author));
    message->parts.push_back(std::move(part));
  }
  return absl::OkStatus();
}

absl::Status ReadCalls(JsonValue value, std::string_view path, Message* message) {
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, path, kCallsMax));
  if (array.size() == 0) return BadField(path, "must not be empty");
  size_t index = 0;
  std::unordered_set<std::string> ids;
  for (const JsonValue item : array) {
    const std::string at = Item(path, index++);
    WEIR_ASSIGN(const JsonObject object, ReadObject(item, at));
    ToolCall call;
    WEIR_TRY(ReadRequiredText(object, "id", at, &call.id));
    JsonValue function;
    const std::string function_path = Member(at, "function");
    if (object["function"].get(function) != simdjson::SUCCESS) {
      return BadField(function_path, "is required");
    }
    WEIR_ASSIGN(const JsonObject body, ReadObject(function, function_path));
    WEIR_TRY(ReadRequiredText(body, "name", function_path, &call.name));
    WEIR_TRY(ReadRequiredText(body, "arguments", function_path, &call.arguments));
    if (!ids.insert(call.id).second) return BadField(Member(at, "id"), "repeats another call's id");
    message->calls.push_back(std::move(call));
  }
  return absl::OkStatus();
}

absl::Status ReadMessageField(std::string_view key, JsonValue value, const std::string& path,
                              Message* message) {
  const bool assistant = message->author == Author::kAssistant;
  if (key == "content") return ReadContent(value, path, message);
  if (key == "tool_call_id" && message->author == Author::kTool) {
    return ReadText(value, path, &message->tool_call_id);
  }
  if (!assistant) return absl::OkStatus();
  if (key == "reasoning_content" || key == "reasoning") {
    return ReadText(value, path, &message->reasoning.emplace());
  }
  if (key == "tool_calls") return ReadCalls(value, path, message);
  if (key == "function_call") return BadField(path, "is not supported; use `tool_calls`");
  if (key == "prefix") return ReadBool(value, path, &message->prefix);
  return absl::OkStatus();
}

absl::StatusOr<Message> ReadMessage(JsonValue value, const std::string& path,
                                    const RequestLimits& limits) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
  std::string role;
  WEIR_TRY(ReadRequiredText(object, "role", path, &role));
  const std::optional<Author> author = AuthorOf(role, limits);
  if (!author) {
    return BadField(Member(path, "role"),
                    "must be one of system, user, assistant, tool, latest_reminder");
  }
  Message message;
  message.author = *author;
  bool has_content = false;
  for (const auto field : object) {
    if (field.value.is_null()) continue;
    if (field.key == "content") {
      has_content = true;
      message.parts.clear();  // a repeated key replaces
    }
    if (field.key == "tool_calls") message.calls.clear();
    WEIR_TRY(ReadMessageField(field.key, field.value, Member(path, field.key), &message));
  }
  if (*author == Author::kAssistant) {
    if (!has_content && message.calls.empty() && !message.prefix) {
      return BadField(path, "needs `content` or `tool_calls`");
    }
  } else if (!has_content) {
    return BadField(Member(path, "content"), "is required");
  }
  if (*author == Author::kTool && message.tool_call_id.empty()) {
    return BadField(Member(path, "tool_call_id"), "is required");
  }
  return message;
}

// Calls still waiting for their result, and who made them.
struct Pending {
  size_t caller = 0;
  std::unordered_set<std::string> ids;
};

absl::Status CheckResults(const std::vector<Message>& messages) {
  Pending pending;
  const auto unanswered = [&] {
    return BadField(Member(Item("messages", pending.caller), "tool_calls"),
                    "has calls without a tool message right after it");
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.author == Author::kTool) {
      if (pending.ids.erase(message.tool_call_id) == 0) {
        return BadField(Member(Item("messages", i), "tool_call_id"),
                        "names no open call of the assistant message before it");
      }
      continue;
    }
    if (!pending.ids.empty()) return unanswered();
    if (message.prefix && i + 1 != messages.size()) {
      return BadField(Member(Item("messages", i), "prefix"), "is allowed in the last message only");
    }
    pending.caller = i;
    for (const ToolCall& call : message.calls) pending.ids.insert(call.id);
  }
  return pending.ids.empty() ? absl::OkStatus() : unanswered();
}

absl::StatusOr<ToolDef> ReadTool(JsonValue value, const std::string& path) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
  std::string_view type;
  if (object["type"].get(type) != simdjson::SUCCESS || type != "function") {
    return BadField(Member(path, "type"), "must be \"function\"");
  }
  JsonValue function;
  const std::string at = Member(path, "function");
  if (object["function"].get(function) != simdjson::SUCCESS) return BadField(at, "is required");
  WEIR_ASSIGN(const JsonObject body, ReadObject(function, at));
  ToolDef tool;
  tool.parameters = "{}";
  WEIR_TRY(ReadRequiredText(body, "name", at, &tool.name));
  WEIR_TRY(CheckToolName(tool.name, Member(at, "name")));
  for (const auto field : body) {
    if (field.value.is_null()) continue;
    const std::string field_path = Member(at, field.key);
    if (field.key == "description") {
      WEIR_TRY(ReadText(field.value, field_path, &tool.description));
    } else if (field.key == "parameters") {
      WEIR_TRY(ReadParameters(field.value, field_path, &tool));
    } else if (field.key == "strict") {
      WEIR_TRY(ReadBool(field.value, field_path, &tool.strict));
    }
  }
  return tool;
}

}  // namespace

absl::StatusOr<std::vector<Message>> ReadMessages(JsonValue value, const RequestLimits& limits) {
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, "messages", limits.messages_max));
  if (array.size() == 0) return BadField("messages", "must not be empty");
  std::vector<Message> messages;
  messages.reserve(array.size());
  for (const JsonValue item : array) {
    WEIR_ASSIGN(Message message, ReadMessage(item, Item("messages", messages.size()), limits));
    messages.push_back(std::move(message));
  }
  WEIR_TRY(CheckResults(messages));
  return messages;
}

absl::StatusOr<std::vector<ToolDef>> ReadTools(JsonValue value, const RequestLimits& limits) {
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, "tools", limits.tools_max));
  std::vector<ToolDef> tools;
  std::unordered_set<std::string> names;
  for (const JsonValue item : array) {
    const std::string path = Item("tools", tools.size());
    WEIR_ASSIGN(ToolDef tool, ReadTool(item, path));
    if (!names.insert(tool.name).second) {
      return BadField(Member(Member(path, "function"), "name"), "repeats another tool's name");
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}

absl::Status ApplyToolChoice(JsonValue value, Conversation* conversation) {
  if (value.is_string()) return ApplyChoiceWord(value, conversation);
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "tool_choice"));
  std::string_view name;
  if (object["function"]["name"].get(name) != simdjson::SUCCESS) {
    return BadField("tool_choice.function.name", "is required");
  }
  return ChooseTool(name, "tool_choice.function.name", conversation);
}

}  // namespace weir::codec
