// SPDX-License-Identifier: Apache-2.0
//
// Token ids of an answer to events: text, reasoning, tool calls. One parser per choice, used by one
// thread, never blocking; it can stop and go on after any token, and the events joined are the same
// for every way of cutting the ids into calls. Text is held back only while it may still turn out to
// be a marker, a stop string or part of a character. Malformed markup is passed on, not repaired. An
// answer that had to be a tool call and ends before the name of one is complete is content after all.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"
#include "codec/template/template.h"
#include "codec/token/tokenizer.h"

namespace weir::codec {

enum class StreamEventKind : uint8_t {
  kContent,        // text
  kReasoning,      // text
  kToolBegin,      // text = the function's name
  kToolArguments,  // text = a fragment of JSON
};

// The events of one call. Reused between calls so that its buffers keep their room.
struct StreamEvents {
  struct Event {
    StreamEventKind kind;
    int call = -1;  // number of the tool call, from 0
    uint32_t offset = 0;
    uint32_t size = 0;
  };
  std::vector<Event> events;
  std::string text;

  std::string_view TextOf(const Event& event) const {
    return std::string_view(text).substr(event.offset, event.size);
  }
  void Clear() {
    events.clear();
    text.clear();
  }
};

struct StreamParserOptions {
  AnswerStart start = AnswerStart::kContent;
  ToolSyntax tools = ToolSyntax::kNone;
  std::vector<std::string> stops;
  // The answer is to be one JSON value: words and fences around it are shown as a space each.
  bool json = false;
};

class StreamParser {
 public:
  StreamParser(std::shared_ptr<const Tokenizer> tokenizer, StreamParserOptions options);
  ~StreamParser();
  StreamParser(StreamParser&&) noexcept;
  StreamParser& operator=(StreamParser&&) noexcept;

  // Takes ids in order and appends what they settle. Returns how many were consumed: all of them,
  // unless a stop string was completed; then the rest is not part of the answer and the caller
  // cancels the sequence.
  size_t Push(std::span<const TokenId> ids, StreamEvents* out);
  // The answer is over: releases what was held back. Once, after the last Push.
  void Finish(StreamEvents* out);

  bool stopped() const;            // by a stop string
  std::string_view stop() const;   // which one; empty if none
  int tool_calls() const;          // begun so far
  bool reasoning() const;          // the next token belongs to the reasoning
  uint64_t consumed() const;       // ids taken
  uint64_t reasoning_ids() const;  // of these, within the reasoning

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weir::codec
