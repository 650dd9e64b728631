// SPDX-License-Identifier: Apache-2.0
//
// Pieces to ids: one look-up where a piece is a token, else BPE. Immutable after construction, any
// thread, never blocks; it keeps no cache, so the first text costs what the thousandth does and
// threads share nothing that they write.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"
#include "codec/token/linear_bpe.h"
#include "codec/token/merge_table.h"
#include "codec/token/piece_table.h"
#include "codec/token/vocab.h"

namespace weir::codec {

class PieceEncoder {
 public:
  static constexpr size_t kBatch = 64;

  // `merges` in rank order; `byte_ids[b]` is the token of the single byte b.
  PieceEncoder(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges,
               const Vocab& vocab);

  // Appends the ids of one piece.
  void Encode(std::string_view piece, std::vector<TokenId>* out) const;
  // Of at most kBatch adjacent pieces from `begin` on, each ending at its entry of `ends`.
  void EncodeBatch(const char* begin, std::span<const char* const> ends,
                   std::vector<TokenId>* out) const;

  // Whether the vocabulary is of the kind whose pieces take linear time.
  bool linear() const { return linear_.has_value(); }
  const MergeTable& merges() const { return merges_; }

 private:
  void EncodeOdd(std::string_view piece, std::vector<TokenId>* out) const;

  std::array<TokenId, 256> byte_ids_;
  MergeTable merges_;
  std::optional<LinearBpe> linear_;
  PieceTable wholes_;
};

}  // namespace weir::codec
