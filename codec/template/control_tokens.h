// SPDX-License-Identifier: Apache-2.0
//
// The control tokens of one vocabulary as a template writes them. Immutable after construction,
// any thread. A token that the vocabulary lacks is written as text and remembered.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/template/template.h"
#include "codec/token/vocab.h"

namespace weir::codec {

class ControlTokens {
 public:
  // `spellings` are all that the template may write.
  ControlTokens(const Vocab& vocab, std::vector<std::string_view> spellings);

  // Writes the token with this spelling.
  void Put(std::string_view spelling, Segments* out) const;
  // The template's own words, in which spellings of control tokens are those tokens.
  Segments Compile(std::string_view text) const;

  const std::vector<std::string>& missing() const { return missing_; }

 private:
  std::vector<std::pair<std::string_view, TokenId>> tokens_;  // -1: missing
  std::vector<std::string> missing_;
};

}  // namespace weir::codec
