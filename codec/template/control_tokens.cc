// SPDX-License-Identifier: Apache-2.0
#include "codec/template/control_tokens.h"

#include "base/stdx/check.h"

namespace weir::codec {

ControlTokens::ControlTokens(const Vocab& vocab, std::vector<std::string_view> spellings) {
  for (const std::string_view spelling : spellings) {
    const auto id = vocab.FindAdded(spelling);
    tokens_.emplace_back(spelling, id.value_or(-1));
    if (!id) missing_.emplace_back(spelling);
  }
}

void ControlTokens::Put(std::string_view spelling, Segments* out) const {
  for (const auto& [known, id] : tokens_) {
    if (known != spelling) continue;
    if (id >= 0) {
      out->Token(id);
    } else {
      out->Text(spelling);
    }
    return;
  }
  WEIR_CHECK(false && "a template writes only the control tokens it has declared");
}

Segments ControlTokens::Compile(std::string_view text) const {
  Segments out;
  size_t plain = 0;
  for (size_t at = 0; at < text.size();) {
    std::string_view found;
    for (const auto& [spelling, id] : tokens_) {
      if (text.substr(at, spelling.size()) == spelling) found = spelling;
    }
    if (found.empty()) {
      ++at;
      continue;
    }
    out.Text(text.substr(plain, at - plain));
    Put(found, &out);
    at += found.size();
    plain = at;
  }
  out.Text(text.substr(plain));
  return out;
}

}  // namespace weir::codec
