// SPDX-License-Identifier: Apache-2.0
//
// The one request type: what a client asked for, whatever dialect it spoke. Plain values, owned by
// whoever holds them, moved from stage to stage; no thread owns the types and nothing here blocks.
// A dialect fills a ChatRequest after checking every field, so the stages to the right may rely on
// the invariants written here; texts are well-formed UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/stdx/ids.h"

namespace weir::codec {

// How much to think. kDefault is the template's own choice (High for V4.1).
enum class Effort : uint8_t { kDefault = 0, kLow = 1, kMedium = 2, kHigh = 3, kXhigh = 4, kMax = 5 };

struct Thinking {
  bool enabled = true;
  Effort effort = Effort::kDefault;
  std::optional<int> effort_level;        // 1..100, wins over effort where the template has levels
  std::optional<uint64_t> budget_tokens;  // advisory
};

struct TextPart {
  std::string text;
};
enum class ImageDetail : uint8_t { kAuto, kLow, kHigh, kOriginal };
struct ImagePart {
  std::string source;  // data URL or http(s) URL, not fetched yet
  ImageDetail detail = ImageDetail::kAuto;
};
using Part = std::variant<TextPart, ImagePart>;

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text exactly as the client sent it; need not parse
};

enum class Author : uint8_t { kSystem, kUser, kAssistant, kTool, kReminder };

struct Message {
  Author author = Author::kUser;
  std::vector<Part> parts;
  // Assistant only.
  std::optional<std::string> reasoning;
  std::vector<ToolCall> calls;
  bool prefix = false;  // last message only: the answer continues this text
  // Tool only: which call this answers.
  std::string tool_call_id;
};

// All text parts joined by a blank line; images are skipped.
std::string TextOf(const Message& message);

struct ToolDef {
  std::string name;  // 1..128 of [A-Za-z0-9_-] (a dialect may add "::")
  std::string description;
  std::string parameters;  // JSON object in normal form (see json_text.h); "{}" when absent
  bool strict = false;
  bool freeform = false;  // called with one text, which is the argument `input`
};

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired };

enum class ConstraintKind : uint8_t { kNone, kJsonObject, kJsonSchema, kRegex, kEbnf };
struct Constraint {
  ConstraintKind kind = ConstraintKind::kNone;
  std::string text;  // schema in normal form, expression or grammar; empty for kNone, kJsonObject
};

struct Conversation {
  std::vector<Message> messages;
  std::vector<ToolDef> tools;  // empty when the choice is none
  ToolChoice tool_choice = ToolChoice::kAuto;
  bool parallel_tool_calls = true;
  Thinking thinking;
  Constraint constraint;
};

// Where generation is text completion, not a conversation: text, or token ids taken as they are.
struct RawPrompt {
  std::variant<std::string, std::vector<TokenId>> prompt;
  std::optional<std::string> suffix;  // fill in the middle
};

struct Sampling {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;        // (0, 1]
  int32_t top_k = 0;         // 0: all
  float min_p = 0.0f;        // [0, 1]
  std::optional<uint64_t> seed;
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  float repetition_penalty = 1.0f;  // (0, 10]
  std::vector<std::pair<TokenId, float>> logit_bias;  // ids not negative, bias in [-100, 100]
};

struct Limits {
  std::optional<uint32_t> max_tokens;  // >= 1; absent: as many as fit
  uint32_t min_tokens = 0;             // <= max_tokens where that is given
  std::vector<std::string> stop;       // not empty strings
  bool ignore_eos = false;
};

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;           // usage in a last chunk of its own
  bool continuous_usage_stats = false;  // usage in every chunk
};

struct LogprobOptions {
  bool enabled = false;
  int top = 0;  // 0..20 alternatives per token
};

enum class Api : uint8_t { kChat, kCompletions, kMessages, kResponses };

// What the field with the prompt is called.
constexpr std::string_view PromptFieldOf(Api api) {
  if (api == Api::kResponses) return "input";
  return api == Api::kCompletions ? "prompt" : "messages";
}

struct ChatRequest {
  Api api = Api::kChat;
  std::string model;  // empty where the client named none: the server chooses
  Conversation conversation;     // unless raw
  std::optional<RawPrompt> raw;  // kCompletions
  Sampling sampling;
  Limits limits;
  LogprobOptions logprobs;
  int n = 1;  // answers to the same prompt
  StreamOptions stream;
  bool echo = false;              // kCompletions: the prompt leads the answer
  bool return_token_ids = false;  // ids beside the text
  std::string user;               // the client's name for its end user; isolates caches and fairness
  std::string cache_salt;         // further isolation asked for by the client
  std::string tenant;             // set by the front from the key, never by the body
};

}  // namespace weir::codec
