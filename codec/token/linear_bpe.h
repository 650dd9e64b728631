// SPDX-License-Identifier: Apache-2.0
//
// Byte-level BPE of one piece in time that is linear in its length, for vocabularies that grew merge
// by merge (each token is the product of one merge of earlier ones), as DeepSeek's did. Immutable
// after Create, any thread.
//
// It rests on this: tokens in a row are what BPE makes of their joined bytes exactly if every two
// neighbours are what BPE makes of theirs. So it takes the longest token that fits to the one before
// it, and steps back where none does; a place from which there was no way on is never tried again.
// Whether two tokens fit is found by undoing their merges, latest first: if a pair across the border
// is a merge that would have come before the one being undone, BPE would have made that instead.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"
#include "codec/token/junctions.h"
#include "codec/token/merge_table.h"
#include "codec/token/token_trie.h"
#include "codec/token/vocab.h"

namespace weir::codec {

class LinearBpe {
 public:
  // `merges` in rank order; `reference` is the same table. Nothing if the vocabulary is not of this
  // kind: two merges with one product, a merge of tokens that no earlier merge makes, or a token
  // that BPE does not make of its own bytes.
  static std::optional<LinearBpe> Create(const std::array<TokenId, 256>& byte_ids,
                                         const std::vector<Merge>& merges, const Vocab& vocab,
                                         const MergeTable& reference);

  void Encode(std::string_view piece, std::vector<TokenId>* out) const;

 private:
  // Symbols: 0..255 are the bytes, 256 + r the product of the merge of rank r.
  static constexpr Symbol kBytes = 256;
  static constexpr size_t kSmallPiece = 63;  // its inner places fit one word of bits

  struct Token {
    Symbol left = 0;   // what it was merged from; a byte is its own
    Symbol right = 0;
    Symbol shorter = kNoSymbol;  // the longest token that it begins with
    uint32_t size = 1;
  };

  bool AddSymbols(const std::vector<Merge>& merges, const Vocab& vocab);
  void AddPairs(const std::vector<Merge>& merges);
  bool AddTrie(const Vocab& vocab, const MergeTable& reference);
  Symbol Product(Symbol left, Symbol right) const;  // kNoSymbol: no merge
  bool Fit(Symbol left, Symbol right) const;
  template <class Stack, class Marks>
  size_t Walk(std::string_view piece, Stack* stack, Marks* dead) const;

  std::vector<TokenId> ids_;   // by symbol
  std::vector<Token> tokens_;  // by symbol
  std::vector<uint64_t> pairs_;    // left, right and product, 21 bits each; open addressing
  std::vector<uint64_t> filter_;   // bits: pairs that may be in pairs_
  int pairs_shift_ = 0;
  TokenTrie trie_;
  Junctions junctions_;
};

}  // namespace weir::codec
