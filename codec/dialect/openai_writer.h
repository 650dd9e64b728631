// SPDX-License-Identifier: Apache-2.0
//
// The chunks and bodies of Chat Completions and Completions, as JSON. One writer per response,
// owned by whoever owns the response, on one thread; it appends to the caller's buffer and allocates
// nothing of its own per chunk. It knows shapes, not order: stream/response decides what is sent
// when.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/conversation/conversation.h"

namespace weir::codec {

// How an answer ended, as clients read it.
enum class FinishReason : uint8_t {
  kNone = 0,
  kStop,       // the model was done, or a stop string
  kLength,     // max_tokens, or no room left
  kToolCalls,  // done, with at least one tool call
  kContentFilter,
  kResource,  // the server gave up
};
std::string_view NameOf(FinishReason reason);  // "tool_calls"; empty for kNone

struct Usage {
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t cached_tokens = 0;     // of the prompt, not computed again
  uint64_t reasoning_tokens = 0;  // of the completion
};
void AppendUsage(const Usage& usage, std::string* out);

struct ResponseHead {
  std::string id;           // without prefix: "chatcmpl-" or "cmpl-" is put before it
  int64_t created = 0;      // seconds since 1970
  std::string model;        // as the client named it
  std::string fingerprint;  // empty: null
  std::string request_id;   // what an error names; empty: `id`
};

enum class UsageField : uint8_t { kAbsent, kNull, kValue };

// What every chunk may carry besides its delta. Views are JSON already.
struct ChunkTail {
  std::string_view logprobs;          // a value; empty: null
  std::string_view token_ids;         // an array; empty: absent
  std::string_view prompt_token_ids;  // ditto
  FinishReason finish = FinishReason::kNone;
  UsageField usage_field = UsageField::kAbsent;
  const Usage* usage = nullptr;  // for kValue
};

// Streams of Chat Completions. Each call appends one event, `data: {...}\n\n`.
class ChatChunkWriter {
 public:
  // In thinking mode deltas name both `content` and `reasoning_content`.
  ChatChunkWriter(const ResponseHead& head, bool thinking);

  void Role(int choice, const ChunkTail& tail, std::string* out) const;
  void Content(int choice, std::string_view text, const ChunkTail& tail, std::string* out) const;
  void Reasoning(int choice, std::string_view text, const ChunkTail& tail, std::string* out) const;
  void ToolBegin(int choice, int call, std::string_view name, const ChunkTail& tail,
                 std::string* out) const;
  void ToolArguments(int choice, int call, std::string_view fragment, const ChunkTail& tail,
                     std::string* out) const;
  // The extra chunk of `include_usage`: no choices.
  void UsageOnly(const Usage& usage, std::string* out) const;

 private:
  void Open(int choice, std::string* out) const;
  void Close(const ChunkTail& tail, std::string* out) const;

  std::string prefix_;  // up to and with `"choices":[`
  std::string id_;
  bool thinking_;
};

// Streams of Completions.
class TextChunkWriter {
 public:
  explicit TextChunkWriter(const ResponseHead& head);
  void Text(int choice, std::string_view text, const ChunkTail& tail, std::string* out) const;
  void UsageOnly(const Usage& usage, std::string* out) const;

 private:
  std::string prefix_;
};

// A whole answer. The same shapes as the chunks' sum.
struct CollectedCall {
  std::string name;
  std::string arguments;
};
struct CollectedChoice {
  std::string content;
  std::string reasoning;
  std::vector<CollectedCall> calls;
  std::string logprobs;   // JSON value; empty: null
  std::string token_ids;  // JSON array; empty: absent
  FinishReason finish = FinishReason::kNone;
};
void AppendChatBody(const ResponseHead& head, bool thinking,
                    std::span<const CollectedChoice> choices, std::string_view prompt_token_ids,
                    const Usage& usage, std::string* out);
void AppendTextBody(const ResponseHead& head, std::span<const CollectedChoice> choices,
                    std::string_view prompt_token_ids, const Usage& usage, std::string* out);

// "call_<id>_<call>"; a choice other than the first is named too, so that ids stay unique.
void AppendCallId(std::string_view id, int choice, int call, std::string* out);

}  // namespace weir::codec
