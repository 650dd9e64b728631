// SPDX-License-Identifier: Apache-2.0
//
// Byte-level BPE of one piece as it is defined: repeatedly joins the pair with the lowest rank,
// leftmost first. For every vocabulary, and what the faster LinearBpe is tested against. Immutable
// after Build, any thread, never blocks. Time is O(n log n) in the piece's length, so no text is a
// trap.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"

namespace weir::codec {

struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId merged = 0;
};

class MergeTable {
 public:
  // `merges` in rank order. `byte_ids[b]` is the token of the single byte b.
  static MergeTable Build(const std::array<TokenId, 256>& byte_ids,
                          const std::vector<Merge>& merges);

  void Encode(std::string_view piece, std::vector<TokenId>* out) const;

 private:
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  static constexpr size_t kSmallPiece = 64;

  uint32_t RankOf(TokenId left, TokenId right) const;
  void EncodeSmall(std::string_view piece, std::vector<TokenId>* out) const;
  void EncodeLarge(std::string_view piece, std::vector<TokenId>* out) const;

  struct Pair {
    uint64_t key = ~uint64_t{0};
    uint32_t rank = kNoRank;
  };

  std::array<TokenId, 256> byte_ids_{};
  std::vector<Pair> pairs_;      // open addressing, power of two, at most half full
  std::vector<TokenId> merged_;  // by rank
};

}  // namespace weir::codec
