// SPDX-License-Identifier: Apache-2.0
#include "codec/token/junctions.h"

#include "codec/token/char_class.h"

namespace weir::codec {
namespace {

void SetBit(size_t bit, std::vector<uint64_t>* bits) { (*bits)[bit / 64] |= uint64_t{1} << (bit % 64); }

}  // namespace

// A token that spans the border holds of each character beside it all or a part. All of both: they
// are among its neighbouring characters. A part of the left one: the token begins with tail bytes.
// A part of the right one: it ends before that character does.
Junctions Junctions::Build(const std::vector<std::string_view>& tokens) {
  Junctions junctions;
  junctions.pairs_.resize((size_t{1} << kPairBits) / 64);
  junctions.partial_.resize(65536 / 64);
  const auto add_partial = [&](std::string_view token, size_t at) {
    const size_t bytes = static_cast<size_t>(static_cast<uint8_t>(token[at - 1])) << 8 |
                         static_cast<uint8_t>(token[at]);
    SetBit(bytes, &junctions.partial_);
  };
  for (const std::string_view token : tokens) {
    size_t first = 0;
    while (first < token.size() && IsTailByte(token[first])) ++first;
    if (first > 0 && first < token.size()) add_partial(token, first);
    for (size_t at = 1; at < token.size(); ++at) {
      if (!IsThreeByteLead(token[at])) continue;
      if (at + 3 > token.size()) {
        add_partial(token, at);
      } else if (at >= 3) {
        const uint32_t left = ThreeBytes(token.data() + at - 3);
        const uint32_t right = ThreeBytes(token.data() + at);
        SetBit(HashOf(left, right), &junctions.pairs_);
      }
    }
  }
  return junctions;
}

}  // namespace weir::codec
