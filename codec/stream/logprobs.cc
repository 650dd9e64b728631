// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/logprobs.h"

#include <cmath>

#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

// JSON has no infinity; this is the usual stand-in for "impossible".
constexpr double kImpossible = -9999.0;

void AppendLogprob(float value, std::string* out) {
  AppendJsonNumber(std::isfinite(value) ? double{value} : kImpossible, out);
}

void AppendComma(std::string* out) {
  if (!out->empty()) out->push_back(',');
}

// `"token":…,"logprob":…,"bytes":[…]` without braces.
void AppendToken(const Vocab& vocab, TokenId id, float logprob, std::string* out) {
  const std::string_view bytes = vocab.BytesOf(id);
  *out += R"("token":)";
  AppendJsonString(bytes, out);
  *out += R"(,"logprob":)";
  AppendLogprob(logprob, out);
  *out += R"(,"bytes":[)";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendJsonNumber(int64_t{static_cast<uint8_t>(bytes[i])}, out);
  }
  out->push_back(']');
}

size_t Characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

void AppendScore(const Vocab& vocab, TokenId id, const TokenLogprob& score, std::string* out) {
  if (vocab.IsAdded(id)) return;  // markers are not text of the answer
  AppendComma(out);
  out->push_back('{');
  AppendToken(vocab, id, score.logprob, out);
  *out += R"(,"top_logprobs":[)";
  bool first = true;
  for (const auto& [other, value] : score.top) {
    if (!first) out->push_back(',');
    first = false;
    out->push_back('{');
    AppendToken(vocab, other, value, out);
    out->push_back('}');
  }
  *out += "]}";
}

void ChatLogprobs::Add(const Vocab& vocab, TokenId id, const TokenLogprob& logprob,
                       bool reasoning) {
  AppendScore(vocab, id, logprob, reasoning ? &reasoning_ : &content_);
}

void ChatLogprobs::TakeInto(std::string* json) {
  json->clear();
  if (content_.empty() && reasoning_.empty()) return;
  *json += R"({"content":[)";
  *json += content_;
  if (!reasoning_.empty()) {
    *json += R"(],"reasoning_content":[)";
    *json += reasoning_;
  }
  *json += "]}";
  content_.clear();
  reasoning_.clear();
}

void TextLogprobs::Add(const Vocab& vocab, TokenId id, const TokenLogprob& logprob) {
  if (vocab.IsSilent(id)) return;
  const std::string_view bytes = vocab.BytesOf(id);
  AppendComma(&tokens_);
  AppendJsonString(bytes, &tokens_);
  AppendComma(&values_);
  AppendLogprob(logprob.logprob, &values_);
  AppendComma(&tops_);
  tops_.push_back('{');
  bool first = true;
  for (const auto& [other, value] : logprob.top) {
    if (!first) tops_.push_back(',');
    first = false;
    AppendJsonString(vocab.BytesOf(other), &tops_);
    tops_.push_back(':');
    AppendLogprob(value, &tops_);
  }
  tops_.push_back('}');
  AppendComma(&offsets_);
  AppendJsonNumber(static_cast<int64_t>(offset_), &offsets_);
  offset_ += Characters(bytes);
}

void TextLogprobs::TakeInto(std::string* json) {
  json->clear();
  if (tokens_.empty()) return;
  *json += R"({"tokens":[)";
  *json += tokens_;
  *json += R"(],"token_logprobs":[)";
  *json += values_;
  *json += R"(],"top_logprobs":[)";
  *json += tops_;
  *json += R"(],"text_offset":[)";
  *json += offsets_;
  *json += "]}";
  tokens_.clear();
  values_.clear();
  tops_.clear();
  offsets_.clear();
}

}  // namespace weir::codec
