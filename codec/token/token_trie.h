// SPDX-License-Identifier: Apache-2.0
//
// The longest token that text begins with, by a double-array trie over the tokens' bytes. Immutable
// after Build, any thread. Tokens are known here by a number below 2^22, their symbol; the lower, the
// more often it is met, and the closer together its nodes lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace weir::codec {

using Symbol = uint32_t;
inline constexpr Symbol kNoSymbol = (1u << 22) - 1;

class TokenTrie {
 public:
  // `tokens` are distinct, not empty, and contain each of the 256 single bytes.
  static TokenTrie Build(std::vector<std::pair<std::string_view, Symbol>> tokens);

  struct Found {
    Symbol symbol = kNoSymbol;
    const char* end = nullptr;  // of its bytes
  };

  // `p` lies before `end`; every single byte is a token, so there always is one.
  Found Longest(const char* p, const char* end) const {
    uint32_t base = root_;
    Found longest;
    do {
      const auto byte = static_cast<uint8_t>(*p);
      const Node node = nodes_[base + byte];
      if (node.label != byte) break;
      ++p;
      if (node.symbol != kNoSymbol) longest = {node.symbol, p};
      base = node.base;
    } while (p < end);
    return longest;
  }

 private:
  // The node that a byte leads to lies at the parent's base plus the byte, and bears the byte as
  // its label. No two parents share a base, so a label that fits is the parent's own.
  struct Node {
    uint32_t base = 0;  // 0: a leaf; nothing lies at 0..255
    uint32_t symbol : 22 = kNoSymbol;
    uint32_t label : 10 = kFree;
  };
  static constexpr uint32_t kFree = 0x3FF;

  friend class TrieBuilder;

  std::vector<Node> nodes_;  // 256 free nodes follow the last base
  uint32_t root_ = 0;
};

}  // namespace weir::codec
