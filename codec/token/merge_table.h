// SPDX-License-Identifier: Apache-2.0
//
// Byte-level BPE of one piece: repeatedly joins the pair with the lowest rank, leftmost first.
// Immutable after Build, any thread, never blocks. Time is O(n log n) in the piece's length, so no
// text is a trap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/stdx/ids.h"
#include "codec/token/vocab.h"

namespace weir::codec {

struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId merged = 0;
};

class MergeTable {
 public:
  // `merges` in rank order. `byte_ids[b]` is the token of the single byte b. Tokens of `vocab` that
  // the merges rebuild from their own bytes are found by one look-up later.
  static MergeTable Build(const std::array<TokenId, 256>& byte_ids,
                          const std::vector<Merge>& merges, const Vocab& vocab);

  void EncodePiece(std::string_view piece, std::vector<TokenId>* out) const;

 private:
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  static constexpr size_t kSmallPiece = 64;

  uint32_t RankOf(TokenId left, TokenId right) const;
  TokenId WholePiece(std::string_view piece) const;  // -1 if it is not one token
  void EncodeSmall(std::string_view piece, std::vector<TokenId>* out) const;
  void EncodeLarge(std::string_view piece, std::vector<TokenId>* out) const;
  void AddWholePieces(const Vocab& vocab);

  struct Pair {
    uint64_t key = ~uint64_t{0};
    uint32_t rank = kNoRank;
  };
  struct Whole {
    uint32_t offset = 0;
    uint32_t size = 0;
    TokenId id = -1;
  };

  std::array<TokenId, 256> byte_ids_{};
  std::vector<Pair> pairs_;  // open addressing, power of two, at most half full
  std::vector<TokenId> merged_;  // by rank
  std::vector<Whole> wholes_;    // ditto, keyed by bytes
  std::string whole_bytes_;
};

}  // namespace weir::codec
