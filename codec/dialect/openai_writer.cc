// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/openai_writer.h"

#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

void AppendCount(uint64_t value, std::string* out) {
  AppendJsonNumber(static_cast<int64_t>(value), out);
}

// `{"id":…,"object":…,"created":…,"model":…,"system_fingerprint":…` and a comma.
void AppendHead(const ResponseHead& head, std::string_view id_prefix, std::string_view object,
                std::string* out) {
  *out += R"({"id":)";
  AppendJsonString(std::string(id_prefix) + head.id, out);
  *out += R"(,"object":)";
  AppendJsonString(object, out);
  *out += R"(,"created":)";
  AppendJsonNumber(head.created, out);
  *out += R"(,"model":)";
  AppendJsonString(head.model, out);
  *out += R"(,"system_fingerprint":)";
  if (head.fingerprint.empty()) {
    *out += "null";
  } else {
    AppendJsonString(head.fingerprint, out);
  }
  out->push_back(',');
}

void AppendValueOrNull(std::string_view json, std::string* out) {
  *out += json.empty() ? std::string_view("null") : json;
}

void AppendFinish(FinishReason reason, std::string* out) {
  *out += R"(,"finish_reason":)";
  if (reason == FinishReason::kNone) {
    *out += "null";
    return;
  }
  out->push_back('"');
  *out += NameOf(reason);
  out->push_back('"');
}

void AppendArray(std::string_view key, std::string_view json, std::string* out) {
  if (json.empty()) return;
  *out += ",\"";
  *out += key;
  *out += "\":";
  *out += json;
}

void AppendUsageField(const ChunkTail& tail, std::string* out) {
  if (tail.usage_field == UsageField::kNull) *out += R"(,"usage":null)";
  if (tail.usage_field == UsageField::kValue && tail.usage != nullptr) {
    *out += R"(,"usage":)";
    AppendUsage(*tail.usage, out);
  }
}

void AppendUsageOnly(std::string_view prefix, const Usage& usage, std::string* out) {
  *out += prefix;
  *out += R"(],"usage":)";
  AppendUsage(usage, out);
  *out += "}\n\n";
}

void AppendTextChoice(int choice, std::string_view text, const ChunkTail& tail, std::string* out) {
  *out += R"({"text":)";
  AppendJsonString(text, out);
  *out += R"(,"index":)";
  AppendJsonNumber(int64_t{choice}, out);
  *out += R"(,"logprobs":)";
  AppendValueOrNull(tail.logprobs, out);
  AppendFinish(tail.finish, out);
  AppendArray("token_ids", tail.token_ids, out);
  AppendArray("prompt_token_ids", tail.prompt_token_ids, out);
  out->push_back('}');
}

void AppendMessage(std::string_view id, bool thinking, int index, const CollectedChoice& choice,
                   std::string* out) {
  *out += R"({"role":"assistant","content":)";
  AppendJsonString(choice.content, out);
  if (thinking) {
    *out += R"(,"reasoning_content":)";
    AppendJsonString(choice.reasoning, out);
  }
  if (!choice.calls.empty()) {
    *out += R"(,"tool_calls":[)";
    for (size_t i = 0; i < choice.calls.size(); ++i) {
      if (i > 0) out->push_back(',');
      *out += R"({"id":")";
      AppendCallId(id, index, static_cast<int>(i), out);
      *out += R"(","type":"function","function":{"name":)";
      AppendJsonString(choice.calls[i].name, out);
      *out += R"(,"arguments":)";
      AppendJsonString(choice.calls[i].arguments, out);
      *out += "}}";
    }
    out->push_back(']');
  }
  out->push_back('}');
}

}  // namespace

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kContentFilter:
      return "content_filter";
    case FinishReason::kResource:
      return "insufficient_system_resource";
  }
  return "";
}

void AppendUsage(const Usage& usage, std::string* out) {
  *out += R"({"prompt_tokens":)";
  AppendCount(usage.prompt_tokens, out);
  *out += R"(,"completion_tokens":)";
  AppendCount(usage.completion_tokens, out);
  *out += R"(,"total_tokens":)";
  AppendCount(usage.prompt_tokens + usage.completion_tokens, out);
  *out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  AppendCount(usage.cached_tokens, out);
  *out += R"(},"completion_tokens_details":{"reasoning_tokens":)";
  AppendCount(usage.reasoning_tokens, out);
  *out += R"(},"prompt_cache_hit_tokens":)";
  AppendCount(usage.cached_tokens, out);
  *out += R"(,"prompt_cache_miss_tokens":)";
  AppendCount(usage.prompt_tokens - usage.cached_tokens, out);
  out->push_back('}');
}

void AppendCallId(std::string_view id, int choice, int call, std::string* out) {
  *out += "call_";
  AppendJsonEscaped(id, out);
  if (choice > 0) {
    out->push_back('_');
    AppendJsonNumber(int64_t{choice}, out);
  }
  out->push_back('_');
  AppendJsonNumber(int64_t{call}, out);
}

ChatChunkWriter::ChatChunkWriter(const ResponseHead& head, bool thinking)
    : prefix_("data: "), id_(head.id), thinking_(thinking) {
  AppendHead(head, "chatcmpl-", "chat.completion.chunk", &prefix_);
  prefix_ += R"("choices":[)";
}

void ChatChunkWriter::Open(int choice, std::string* out) const {
  *out += prefix_;
  *out += R"({"index":)";
  AppendJsonNumber(int64_t{choice}, out);
  *out += R"(,"delta":{)";
}

void ChatChunkWriter::Close(const ChunkTail& tail, std::string* out) const {
  *out += R"(},"logprobs":)";
  AppendValueOrNull(tail.logprobs, out);
  AppendFinish(tail.finish, out);
  AppendArray("token_ids", tail.token_ids, out);
  *out += "}]";
  AppendUsageField(tail, out);
  AppendArray("prompt_token_ids", tail.prompt_token_ids, out);
  *out += "}\n\n";
}

void ChatChunkWriter::Role(int choice, const ChunkTail& tail, std::string* out) const {
  Open(choice, out);
  *out += thinking_ ? R"("role":"assistant","content":null,"reasoning_content":"")"
                    : R"("role":"assistant","content":"")";
  Close(tail, out);
}

void ChatChunkWriter::Content(int choice, std::string_view text, const ChunkTail& tail,
                              std::string* out) const {
  Open(choice, out);
  *out += R"("content":)";
  AppendJsonString(text, out);
  if (thinking_) *out += R"(,"reasoning_content":null)";
  Close(tail, out);
}

void ChatChunkWriter::Reasoning(int choice, std::string_view text, const ChunkTail& tail,
                                std::string* out) const {
  Open(choice, out);
  *out += R"("content":null,"reasoning_content":)";
  AppendJsonString(text, out);
  Close(tail, out);
}

void ChatChunkWriter::ToolBegin(int choice, int call, std::string_view name, const ChunkTail& tail,
                                std::string* out) const {
  Open(choice, out);
  *out += R"("tool_calls":[{"index":)";
  AppendJsonNumber(int64_t{call}, out);
  *out += R"(,"id":")";
  AppendCallId(id_, choice, call, out);
  *out += R"(","type":"function","function":{"name":)";
  AppendJsonString(name, out);
  *out += R"(,"arguments":""}}])";
  Close(tail, out);
}

void ChatChunkWriter::ToolArguments(int choice, int call, std::string_view fragment,
                                    const ChunkTail& tail, std::string* out) const {
  Open(choice, out);
  *out += R"("tool_calls":[{"index":)";
  AppendJsonNumber(int64_t{call}, out);
  *out += R"(,"function":{"arguments":)";
  AppendJsonString(fragment, out);
  *out += "}}]";
  Close(tail, out);
}

void ChatChunkWriter::UsageOnly(const Usage& usage, std::string* out) const {
  AppendUsageOnly(prefix_, usage, out);
}

TextChunkWriter::TextChunkWriter(const ResponseHead& head) : prefix_("data: ") {
  AppendHead(head, "cmpl-", "text_completion", &prefix_);
  prefix_ += R"("choices":[)";
}

void TextChunkWriter::Text(int choice, std::string_view text, const ChunkTail& tail,
                           std::string* out) const {
  *out += prefix_;
  AppendTextChoice(choice, text, tail, out);
  out->push_back(']');
  AppendUsageField(tail, out);
  *out += "}\n\n";
}

void TextChunkWriter::UsageOnly(const Usage& usage, std::string* out) const {
  AppendUsageOnly(prefix_, usage, out);
}

void AppendChatBody(const ResponseHead& head, bool thinking,
                    std::span<const CollectedChoice> choices, std::string_view prompt_token_ids,
                    const Usage& usage, std::string* out) {
  AppendHead(head, "chatcmpl-", "chat.completion", out);
  *out += R"("choices":[)";
  for (size_t i = 0; i < choices.size(); ++i) {
    const CollectedChoice& choice = choices[i];
    if (i > 0) out->push_back(',');
    *out += R"({"index":)";
    AppendJsonNumber(static_cast<int64_t>(i), out);
    *out += R"(,"message":)";
    AppendMessage(head.id, thinking, static_cast<int>(i), choice, out);
    *out += R"(,"logprobs":)";
    AppendValueOrNull(choice.logprobs, out);
    AppendFinish(choice.finish, out);
    AppendArray("token_ids", choice.token_ids, out);
    out->push_back('}');
  }
  *out += R"(],"usage":)";
  AppendUsage(usage, out);
  AppendArray("prompt_token_ids", prompt_token_ids, out);
  out->push_back('}');
}

void AppendTextBody(const ResponseHead& head, std::span<const CollectedChoice> choices,
                    std::string_view prompt_token_ids, const Usage& usage, std::string* out) {
  AppendHead(head, "cmpl-", "text_completion", out);
  *out += R"("choices":[)";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out->push_back(',');
    ChunkTail tail;
    tail.logprobs = choices[i].logprobs;
    tail.token_ids = choices[i].token_ids;
    tail.prompt_token_ids = prompt_token_ids;
    tail.finish = choices[i].finish;
    AppendTextChoice(static_cast<int>(i), choices[i].content, tail, out);
  }
  *out += R"(],"usage":)";
  AppendUsage(usage, out);
  out->push_back('}');
}

}  // namespace weir::codec
