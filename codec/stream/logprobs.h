// SPDX-License-Identifier: Apache-2.0
//
// Log-probabilities of an answer, rendered as they come and kept until the text that they belong to
// may go out. Internal to the response; one thread. Both dialects' shapes are JSON values.
#pragma once

#include <string>

#include "base/stdx/ids.h"
#include "codec/stream/response.h"
#include "codec/token/vocab.h"

namespace weir::codec {

// One token as an item of a JSON array, after a comma where `out` has an item already; markers, which
// are not text of the answer, are left out.
void AppendScore(const Vocab& vocab, TokenId id, const TokenLogprob& score, std::string* out);

// Chat Completions: {"content": [...], "reasoning_content": [...]}.
class ChatLogprobs {
 public:
  void Add(const Vocab& vocab, TokenId id, const TokenLogprob& logprob, bool reasoning);
  // Replaces `json` by what was added since the last call; empty if nothing was.
  void TakeInto(std::string* json);

 private:
  std::string content_;
  std::string reasoning_;
};

// Completions: parallel arrays.
class TextLogprobs {
 public:
  explicit TextLogprobs(size_t text_offset = 0) : offset_(text_offset) {}
  void Add(const Vocab& vocab, TokenId id, const TokenLogprob& logprob);
  void TakeInto(std::string* json);

 private:
  std::string tokens_;
  std::string values_;
  std::string tops_;
  std::string offsets_;
  size_t offset_;  // characters of the answer before the next token
};

}  // namespace weir::codec
