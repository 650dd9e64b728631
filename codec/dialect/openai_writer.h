// SPDX-License-Identifier: Apache-2.0
//
// The chunks and bodies of Chat Completions and Completions, as JSON. One writer per response,
// owned by whoever owns the response, on one thread; it appends to the caller's buffer and allocates
// nothing per chunk once its own buffers have grown. It knows shapes, not order: stream/response
// decides what is sent when.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "codec/conversation/conversation.h"

namespace weir::codec {

// How an answer ended, as clients read it.
enum class FinishReason : uint8_t {
  kNone = 0,
  kStop,           // the model was done, or a stop string
  kLength,         // max_tokens, or no room left
  kToolCalls,      // done, with at least one tool call
  kContentFilter,
  kResource,       // the server gave up
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
};

// Extra fields of one chunk or message, already JSON: pre-rendered so that they can be queued while
// their text is held back. Empty: absent.
struct ChoiceExtras {
  std::string_view content_logprobs;    // inside of an array
  std::string_view reasoning_logprobs;  // inside of an array
  std::string_view token_ids;           // inside of an array
  bool logprobs_wanted = false;         // arrays are written even when empty
};

enum class UsageField : uint8_t { kAbsent, kNull, kValue };

class ChatChunkWriter {
 public:
  ChatChunkWriter(const ResponseHead& head, bool thinking);

  // Each appends one whole event, `data: {...}\n\n`. `usage` may be null unless kValue.
  struct Tail {
    ChoiceExtras extras;
    FinishReason finish = FinishReason::kNone;
    UsageField usage_field = UsageField::kAbsent;
    const Usage* usage = nullptr;
  };
  void Role(int choice, const Tail& tail, std::string* out) const;
  void Content(int choice, std::string_view text, const Tail& tail, std::string* out) const;
  void Reasoning(int choice, std::string_view text, const Tail& tail, std::string* out) const;
  void ToolBegin(int choice, int call, std::string_view name, const Tail& tail,
                 std::string* out) const;
  void ToolArguments(int choice, int call, std::string_view fragment, const Tail& tail,
                     std::string* out) const;
  void UsageOnly(const Usage& usage, std::string* out) const;

  // The id of a call: "call_<response>_<choice-><call>".
  void AppendCallId(int choice, int call, std::string* out) const;

 private:
  void Open(int choice, std::string* out) const;
  void Close(const Tail& tail, std::string* out) const;

  std::string prefix_;  // up to and with `"choices":[`
  std::string id_;
  bool thinking_;
};

}  // namespace weir::codec
