// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/messages_blocks.h"

#include <string>
#include <unordered_set>
#include <utility>

#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"
#include "codec/dialect/tool_fields.h"

namespace weir::codec {
namespace {

constexpr size_t kBlocksMax = 4096;
constexpr size_t kUrlMax = 8192;
constexpr std::string_view kDocument = "[Unsupported Document]";

// One block of a turn, with where it stands.
struct Block {
  JsonObject object;
  std::string_view type;
  std::string path;
};

absl::StatusOr<Block> ReadBlock(JsonValue value, std::string path) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
  Block block{object, {}, std::move(path)};
  if (object["type"].get(block.type) != simdjson::SUCCESS) {
    return BadField(Member(block.path, "type"), "must be a string");
  }
  return block;
}

absl::Status UnknownBlock(const Block& block, std::string_view where) {
  std::string what = "\"" + std::string(block.type.substr(0, 64)) + "\" is not taken in ";
  what += where;
  return BadField(Member(block.path, "type"), what);
}

absl::StatusOr<Part> ReadTextBlock(const Block& block) {
  TextPart part;
  WEIR_TRY(ReadRequiredText(block.object, "text", block.path, &part.text));
  return Part(std::move(part));
}

absl::StatusOr<Part> ReadImageBlock(const Block& block) {
  const std::string path = Member(block.path, "source");
  JsonValue value;
  if (block.object["source"].get(value) != simdjson::SUCCESS) {
    return BadField(path, "is required");
  }
  WEIR_ASSIGN(const JsonObject source, ReadObject(value, path));
  std::string type;
  WEIR_TRY(ReadRequiredText(source, "type", path, &type));
  ImagePart image;
  if (type == "url") {
    WEIR_TRY(ReadRequiredText(source, "url", path, &image.source));
    if (image.source.rfind("http", 0) != 0 || image.source.size() > kUrlMax) {
      return BadField(Member(path, "url"), "must be an http(s) URL of at most 8192 bytes");
    }
    return Part(std::move(image));
  }
  if (type != "base64") return BadField(Member(path, "type"), "must be \"base64\" or \"url\"");
  std::string data;
  WEIR_TRY(ReadRequiredText(source, "media_type", path, &image.source));
  WEIR_TRY(ReadRequiredText(source, "data", path, &data));
  image.source = "data:" + image.source + ";base64," + data;
  return Part(std::move(image));
}

// What a user or a tool may say: text, an image, the name of a tool, a document's placeholder.
absl::StatusOr<Part> ReadUserPart(const Block& block, std::string_view where) {
  if (block.type == "text") return ReadTextBlock(block);
  if (block.type == "image") return ReadImageBlock(block);
  if (block.type == "document") return Part(TextPart{std::string(kDocument)});
  if (block.type == "tool_reference") {
    TextPart part;
    WEIR_TRY(ReadRequiredText(block.object, "tool_name", block.path, &part.text));
    return Part(std::move(part));
  }
  return UnknownBlock(block, where);
}

absl::StatusOr<Message> ReadToolResult(const Block& block) {
  Message result;
  result.author = Author::kTool;
  WEIR_TRY(ReadRequiredText(block.object, "tool_use_id", block.path, &result.tool_call_id));
  JsonValue content;
  const std::string path = Member(block.path, "content");
  const bool given = block.object["content"].get(content) == simdjson::SUCCESS &&
                     !content.is_null();
  if (given && content.is_array()) {
    WEIR_ASSIGN(const JsonArray array, ReadArray(content, path, kBlocksMax));
    size_t index = 0;
    for (const JsonValue item : array) {
      WEIR_ASSIGN(const Block inner, ReadBlock(item, Item(path, index++)));
      WEIR_ASSIGN(Part part, ReadUserPart(inner, "a tool_result"));
      result.parts.push_back(std::move(part));
    }
  } else {
    TextPart part;
    if (given) WEIR_TRY(ReadText(content, path, &part.text));
    result.parts.emplace_back(std::move(part));
  }
  return result;
}

// A text or blocks of text.
absl::Status ReadTexts(JsonValue content, std::string_view path, std::vector<Message>* messages) {
  Message message;
  message.author = Author::kSystem;
  if (content.is_array()) {
    WEIR_ASSIGN(const JsonArray array, ReadArray(content, path, kBlocksMax));
    size_t index = 0;
    for (const JsonValue item : array) {
      WEIR_ASSIGN(const Block block, ReadBlock(item, Item(path, index++)));
      if (block.type != "text") return UnknownBlock(block, "a system prompt");
      WEIR_ASSIGN(Part part, ReadTextBlock(block));
      message.parts.push_back(std::move(part));
    }
  } else {
    TextPart part;
    if (!content.is_string()) return BadField(path, "must be a string or an array of blocks");
    WEIR_TRY(ReadText(content, path, &part.text));
    message.parts.emplace_back(std::move(part));
  }
  if (!TextOf(message).empty()) messages->push_back(std::move(message));
  return absl::OkStatus();
}

// Reads turns one after another and keeps the calls that still wait for their results.
class Turns {
 public:
  explicit Turns(std::vector<Message>* messages) : messages_(messages) {}

  absl::Status Read(JsonValue value, const std::string& path) {
    WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
    std::string role;
    WEIR_TRY(ReadRequiredText(object, "role", path, &role));
    JsonValue content;
    const std::string at = Member(path, "content");
    if (object["content"].get(content) != simdjson::SUCCESS) return BadField(at, "is required");
    last_is_assistant_ = role == "assistant";
    if (role == "assistant") return ReadAssistant(content, at);
    if (role == "user") return ReadUser(content, at);
    if (role == "system") return ReadReminder(content, at);
    return BadField(Member(path, "role"), "must be \"user\" or \"assistant\"");
  }

  absl::Status End() {
    if (!pending_.empty()) return Unanswered();
    if (last_is_assistant_) messages_->back().prefix = true;
    return absl::OkStatus();
  }

 private:
  absl::Status Unanswered() const {
    return BadField(caller_, "has a tool_use without a tool_result in the next message");
  }

  static absl::StatusOr<JsonArray> ReadBlocks(JsonValue content, std::string_view path) {
    if (!content.is_array()) return BadField(path, "must be a string or an array of blocks");
    WEIR_ASSIGN(const JsonArray array, ReadArray(content, path, kBlocksMax));
    if (array.size() == 0) return BadField(path, "must not be empty");
    return array;
  }

  static Message TextOfOne(Author author, std::string text) {
    Message message;
    message.author = author;
    message.parts.emplace_back(TextPart{std::move(text)});
    return message;
  }

  absl::Status ReadUser(JsonValue content, const std::string& path) {
    if (content.is_string()) {
      if (!pending_.empty()) return Unanswered();
      std::string text;
      WEIR_TRY(ReadText(content, path, &text));
      messages_->push_back(TextOfOne(Author::kUser, std::move(text)));
      return absl::OkStatus();
    }
    WEIR_ASSIGN(const JsonArray array, ReadBlocks(content, path));
    Message said;
    size_t index = 0;
    for (const JsonValue item : array) {
      WEIR_ASSIGN(const Block block, ReadBlock(item, Item(path, index++)));
      if (block.type != "tool_result") {
        if (!pending_.empty()) return Unanswered();
        WEIR_ASSIGN(Part part, ReadUserPart(block, "a user message"));
        said.parts.push_back(std::move(part));
        continue;
      }
      WEIR_ASSIGN(Message result, ReadToolResult(block));
      if (pending_.erase(result.tool_call_id) == 0) {
        return BadField(Member(block.path, "tool_use_id"),
                        "names no open tool_use of the message before it");
      }
      messages_->push_back(std::move(result));
    }
    if (!pending_.empty()) return Unanswered();
    if (!said.parts.empty()) messages_->push_back(std::move(said));
    return absl::OkStatus();
  }

  // Instructions between turns are shown as the user's, in the tag that models know them by.
  absl::Status ReadReminder(JsonValue content, const std::string& path) {
    if (!pending_.empty()) return Unanswered();
    std::vector<Message> read;
    WEIR_TRY(ReadTexts(content, path, &read));
    if (read.empty()) return absl::OkStatus();
    messages_->push_back(TextOfOne(
        Author::kUser,
        "<system-reminder>\n" + TextOf(read.front()) + "\n</system-reminder>"));
    return absl::OkStatus();
  }

  absl::Status ReadAssistant(JsonValue content, const std::string& path) {
    if (!pending_.empty()) return Unanswered();
    if (content.is_string()) {
      std::string text;
      WEIR_TRY(ReadText(content, path, &text));
      messages_->push_back(TextOfOne(Author::kAssistant, std::move(text)));
      return absl::OkStatus();
    }
    WEIR_ASSIGN(const JsonArray array, ReadBlocks(content, path));
    Message message;
    message.author = Author::kAssistant;
    size_t index = 0;
    for (const JsonValue item : array) {
      WEIR_ASSIGN(const Block block, ReadBlock(item, Item(path, index++)));
      WEIR_TRY(ReadAssistantBlock(block, &message));
    }
    caller_ = path;
    for (const ToolCall& call : message.calls) pending_.insert(call.id);
    messages_->push_back(std::move(message));
    return absl::OkStatus();
  }

  static absl::Status ReadAssistantBlock(const Block& block, Message* message) {
    if (block.type == "text") {
      if (!message->calls.empty()) return BadField(block.path, "is text after a tool_use");
      WEIR_ASSIGN(Part part, ReadTextBlock(block));
      message->parts.push_back(std::move(part));
      return absl::OkStatus();
    }
    if (block.type == "thinking") {
      std::string text;
      WEIR_TRY(ReadRequiredText(block.object, "thinking", block.path, &text));
      if (!message->reasoning) {
        message->reasoning = std::move(text);
      } else {
        *message->reasoning += "\n\n" + text;
      }
      return absl::OkStatus();
    }
    if (block.type == "tool_use") return ReadToolUse(block, message);
    // What only the server that wrote it can read.
    const bool foreign = block.type == "redacted_thinking" || block.type == "server_tool_use" ||
                         block.type == "web_search_tool_result";
    return foreign ? absl::OkStatus() : UnknownBlock(block, "an assistant message");
  }

  static absl::Status ReadToolUse(const Block& block, Message* message) {
    ToolCall call;
    WEIR_TRY(ReadRequiredText(block.object, "id", block.path, &call.id));
    WEIR_TRY(ReadRequiredText(block.object, "name", block.path, &call.name));
    JsonValue input;
    const std::string path = Member(block.path, "input");
    if (block.object["input"].get(input) != simdjson::SUCCESS) return BadField(path, "is required");
    WEIR_TRY(ReadObject(input, path).status());
    WEIR_ASSIGN(call.arguments, NormalJson(std::string(simdjson::minify(input))));
    if (message->calls.size() == kCallsMax) return BadField(block.path, "is one call too many");
    for (const ToolCall& other : message->calls) {
      if (other.id == call.id) return BadField(Member(block.path, "id"), "repeats another call's id");
    }
    message->calls.push_back(std::move(call));
    return absl::OkStatus();
  }

  std::vector<Message>* const messages_;
  std::unordered_set<std::string> pending_;
  std::string caller_;  // whose calls those are
  bool last_is_assistant_ = false;
};

}  // namespace

absl::Status ReadSystem(JsonValue value, std::vector<Message>* messages) {
  return ReadTexts(value, "system", messages);
}

absl::Status ReadTurns(JsonValue value, const RequestLimits& limits,
                       std::vector<Message>* messages) {
  WEIR_ASSIGN(const JsonArray array, ReadArray(value, "messages", limits.messages_max));
  if (array.size() == 0) return BadField("messages", "must not be empty");
  Turns turns(messages);
  size_t index = 0;
  for (const JsonValue item : array) WEIR_TRY(turns.Read(item, Item("messages", index++)));
  return turns.End();
}

}  // namespace weir::codec
