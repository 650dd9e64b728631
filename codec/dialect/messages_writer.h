// SPDX-License-Identifier: Apache-2.0
//
// The events and bodies of Anthropic Messages, as JSON. One writer per response, owned by whoever
// owns the response, on one thread; it appends to the caller's buffer. It knows shapes, not order:
// stream/messages_response decides what is sent when.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/dialect/openai_writer.h"

namespace weir::codec {

enum class BlockKind : uint8_t { kThinking, kText, kToolUse };

// A block of a whole answer.
struct CollectedBlock {
  BlockKind kind = BlockKind::kText;
  std::string name;  // of the tool
  std::string text;  // for a tool its input
};

// Why an answer ended, as clients read it, and at which stop sequence (empty: none).
struct MessagesEnd {
  FinishReason finish = FinishReason::kStop;
  std::string_view stop_sequence;
};

class MessagesWriter {
 public:
  explicit MessagesWriter(const ResponseHead& head) : head_(head) {}

  // Each appends one event, `event: TYPE\ndata: {...}\n\n`.
  void MessageStart(const Usage& usage, std::string* out) const;
  void BlockStart(int index, BlockKind kind, int call, std::string_view name,
                  std::string* out) const;
  void Ping(std::string* out) const;
  void BlockDelta(int index, BlockKind kind, std::string_view text, std::string* out) const;
  // A thinking block is signed before it ends.
  void BlockStop(int index, BlockKind kind, std::string* out) const;
  // message_delta and message_stop.
  void MessageEnd(const MessagesEnd& end, const Usage& usage, std::string* out) const;

  // The whole answer as one body. A tool's input that is no JSON object, since the answer was cut,
  // becomes {}.
  void Body(std::span<const CollectedBlock> blocks, const MessagesEnd& end, const Usage& usage,
            std::string* out) const;

 private:
  void AppendMessage(std::span<const CollectedBlock> blocks, const MessagesEnd* end,
                     const Usage& usage, std::string* out) const;
  void AppendCall(int call, std::string_view name, std::string_view input, std::string* out) const;

  const ResponseHead head_;
};

// {"input_tokens": N}: the answer to count_tokens.
std::string TokenCountBody(uint64_t tokens);

}  // namespace weir::codec
