// SPDX-License-Identifier: Apache-2.0
#include "codec/token/parallel.h"

#include <cstring>

namespace weir::codec {

std::vector<size_t> PartEnds(const Tokenizer& tokenizer, std::string_view text,
                             size_t part_bytes) {
  std::vector<size_t> ends;
  for (size_t from = 0; from < text.size();) {
    size_t end = text.size();
    if (text.size() - from > part_bytes) end = tokenizer.SafeCut(text, from + part_bytes);
    ends.push_back(end);
    from = end;
  }
  return ends;
}

void EncodeInParallel(const Tokenizer& tokenizer, std::string_view text, RunJobs run,
                      std::vector<TokenId>* out, size_t part_bytes) {
  const std::vector<size_t> ends = PartEnds(tokenizer, text, part_bytes);
  if (ends.size() < 2) return tokenizer.Encode(text, out);
  std::vector<std::vector<TokenId>> parts(ends.size());
  run(ends.size(), [&](size_t i) {
    const size_t from = i == 0 ? 0 : ends[i - 1];
    tokenizer.Encode(text.substr(from, ends[i] - from), &parts[i]);
  });
  size_t at = out->size();
  size_t total = at;
  for (const auto& part : parts) total += part.size();
  out->resize(total);
  for (const auto& part : parts) {
    if (!part.empty()) std::memcpy(out->data() + at, part.data(), part.size() * sizeof(TokenId));
    at += part.size();
  }
}

}  // namespace weir::codec
