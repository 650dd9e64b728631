// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/messages_writer.h"

#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

void AppendCount(uint64_t value, std::string* out) {
  AppendJsonNumber(static_cast<int64_t>(value), out);
}

// `event: TYPE\ndata: {"type":"TYPE"`; the caller writes the rest of the object.
void OpenEvent(std::string_view type, std::string* out) {
  *out += "event: ";
  *out += type;
  *out += R"(
data: {"type":")";
  *out += type;
  out->push_back('"');
}

void OpenBlockEvent(std::string_view type, int index, std::string* out) {
  OpenEvent(type, out);
  *out += R"(,"index":)";
  AppendJsonNumber(int64_t{index}, out);
}

void CloseEvent(std::string* out) { *out += "}\n\n"; }

// What was in a cache is not counted as input, so the three add up to the prompt.
void AppendInputUsage(const Usage& usage, std::string* out) {
  *out += R"({"input_tokens":)";
  AppendCount(usage.prompt_tokens - usage.cached_tokens, out);
  *out += R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)";
  AppendCount(usage.cached_tokens, out);
  *out += R"(,"output_tokens":)";
  AppendCount(usage.completion_tokens, out);
}

void AppendUsageObject(const Usage& usage, std::string* out) {
  AppendInputUsage(usage, out);
  *out += R"(,"service_tier":"standard"})";
}

std::string_view StopReasonOf(const MessagesEnd& end) {
  if (!end.stop_sequence.empty()) return "stop_sequence";
  switch (end.finish) {
    case FinishReason::kLength:
    case FinishReason::kResource:
      return "max_tokens";
    case FinishReason::kToolCalls:
      return "tool_use";
    case FinishReason::kContentFilter:
      return "refusal";
    default:
      return "end_turn";
  }
}

// `"stop_reason":…,"stop_sequence":…`; nulls where the answer is still under way.
void AppendEnd(const MessagesEnd* end, std::string* out) {
  *out += R"("stop_reason":)";
  if (end == nullptr) {
    *out += R"(null,"stop_sequence":null)";
    return;
  }
  out->push_back('"');
  *out += StopReasonOf(*end);
  *out += R"(","stop_sequence":)";
  if (end->stop_sequence.empty()) {
    *out += "null";
  } else {
    AppendJsonString(end->stop_sequence, out);
  }
}

}  // namespace

void MessagesWriter::AppendCall(int call, std::string_view name, std::string_view input,
                                std::string* out) const {
  *out += R"({"type":"tool_use","id":"toolu_)";
  AppendJsonEscaped(head_.id, out);
  out->push_back('_');
  AppendJsonNumber(int64_t{call}, out);
  *out += R"(","name":)";
  AppendJsonString(name, out);
  *out += R"(,"input":)";
  *out += input;
  out->push_back('}');
}

void MessagesWriter::AppendMessage(std::span<const CollectedBlock> blocks, const MessagesEnd* end,
                                   const Usage& usage, std::string* out) const {
  *out += R"({"id":"msg_)";
  AppendJsonEscaped(head_.id, out);
  *out += R"(","type":"message","role":"assistant","model":)";
  AppendJsonString(head_.model, out);
  *out += R"(,"content":[)";
  int calls = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const CollectedBlock& block = blocks[i];
    if (i > 0) out->push_back(',');
    if (block.kind == BlockKind::kToolUse) {
      const bool whole = JsonMembers(block.text).ok();
      AppendCall(calls++, block.name, whole ? std::string_view(block.text) : "{}", out);
      continue;
    }
    const bool thinking = block.kind == BlockKind::kThinking;
    *out += thinking ? R"({"type":"thinking","thinking":)" : R"({"type":"text","text":)";
    AppendJsonString(block.text, out);
    if (thinking) {
      *out += R"(,"signature":)";
      AppendJsonString(head_.id, out);
    }
    out->push_back('}');
  }
  *out += "],";
  AppendEnd(end, out);
  *out += R"(,"usage":)";
  AppendUsageObject(usage, out);
  out->push_back('}');
}

void MessagesWriter::MessageStart(const Usage& usage, std::string* out) const {
  OpenEvent("message_start", out);
  *out += R"(,"message":)";
  AppendMessage({}, nullptr, usage, out);
  CloseEvent(out);
}

void MessagesWriter::BlockStart(int index, BlockKind kind, int call, std::string_view name,
                                std::string* out) const {
  OpenBlockEvent("content_block_start", index, out);
  *out += R"(,"content_block":)";
  switch (kind) {
    case BlockKind::kThinking:
      *out += R"({"type":"thinking","thinking":"","signature":""})";
      break;
    case BlockKind::kText:
      *out += R"({"type":"text","text":""})";
      break;
    case BlockKind::kToolUse:
      AppendCall(call, name, "{}", out);
      break;
  }
  CloseEvent(out);
}

void MessagesWriter::Ping(std::string* out) const {
  OpenEvent("ping", out);
  CloseEvent(out);
}

void MessagesWriter::BlockDelta(int index, BlockKind kind, std::string_view text,
                                std::string* out) const {
  OpenBlockEvent("content_block_delta", index, out);
  switch (kind) {
    case BlockKind::kThinking:
      *out += R"(,"delta":{"type":"thinking_delta","thinking":)";
      break;
    case BlockKind::kText:
      *out += R"(,"delta":{"type":"text_delta","text":)";
      break;
    case BlockKind::kToolUse:
      *out += R"(,"delta":{"type":"input_json_delta","partial_json":)";
      break;
  }
  AppendJsonString(text, out);
  out->push_back('}');
  CloseEvent(out);
}

void MessagesWriter::BlockStop(int index, BlockKind kind, std::string* out) const {
  if (kind == BlockKind::kThinking) {
    // Opaque to clients, who send it back with the block.
    OpenBlockEvent("content_block_delta", index, out);
    *out += R"(,"delta":{"type":"signature_delta","signature":)";
    AppendJsonString(head_.id, out);
    out->push_back('}');
    CloseEvent(out);
  }
  OpenBlockEvent("content_block_stop", index, out);
  CloseEvent(out);
}

void MessagesWriter::MessageEnd(const MessagesEnd& end, const Usage& usage,
                                std::string* out) const {
  OpenEvent("message_delta", out);
  *out += R"(,"delta":{)";
  AppendEnd(&end, out);
  *out += R"(},"usage":)";
  AppendInputUsage(usage, out);
  out->push_back('}');
  CloseEvent(out);
  OpenEvent("message_stop", out);
  CloseEvent(out);
}

void MessagesWriter::Body(std::span<const CollectedBlock> blocks, const MessagesEnd& end,
                          const Usage& usage, std::string* out) const {
  AppendMessage(blocks, &end, usage, out);
}

std::string TokenCountBody(uint64_t tokens) {
  std::string body = R"({"input_tokens":)";
  AppendCount(tokens, &body);
  body.push_back('}');
  return body;
}

}  // namespace weir::codec
