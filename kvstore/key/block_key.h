// SPDX-License-Identifier: Apache-2.0
//
// BlockKey: the name of one immutable block of KV, which commits to every token before its end.
// KeyChain: the keys of one sequence, block by block. Plain values of whoever holds them; nothing
// blocks, and a chain keeps the keys and at most one block of tokens. Canonical bytes, no process
// seed: equal everywhere. Appending media out of order is a bug and ends the process.
//
//   k_i = SHA-256(0x01, k_{i-1}, ids of block i as u32 little-endian, media that begin in block i)
//
// k_0 is the root of the isolation domain and model (namespace.h). Media follow the ids, whose number
// is fixed: place in the block and length as u32, then the whole 32 bytes of its digest.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/stdx/hash.h"
#include "base/stdx/ids.h"

namespace weir::kv {

// The first 128 bits of a key: what an index looks up. The record's header settles the rest.
struct IndexKey {
  uint64_t hi = 0;
  uint64_t lo = 0;

  constexpr auto operator<=>(const IndexKey&) const = default;
  template <class H>
  friend H AbslHashValue(H state, const IndexKey& key) {
    return H::combine(std::move(state), key.hi, key.lo);
  }
};

struct BlockKey {
  std::array<uint8_t, 32> bytes{};

  auto operator<=>(const BlockKey&) const = default;
  template <class H>
  friend H AbslHashValue(H state, const BlockKey& key) {
    return H::combine(std::move(state), key.index());
  }

  IndexKey index() const { return {Word(0), Word(8)}; }
  // Of bits outside the index key, so that two keys of one index entry differ in it.
  uint16_t fingerprint() const { return static_cast<uint16_t>(bytes[16] << 8 | bytes[17]); }

 private:
  // Big-endian, so that keys sort alike as bytes and as words.
  uint64_t Word(size_t at) const {
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i) word = word << 8 | bytes[at + i];
    return word;
  }
};

std::string HexOf(const BlockKey& key);

// An image (or another input that is no token) and the token positions that stand for it.
struct Media {
  Position first = 0;
  uint32_t tokens = 0;
  Sha256Digest digest{};  // of the decoded content with its shape
};

class KeyChain {
 public:
  KeyChain(const BlockKey& root, uint32_t block_tokens);

  // `media` are those that begin within `tokens`, in order of position.
  void Append(std::span<const TokenId> tokens, std::span<const Media> media = {});

  uint32_t block_tokens() const { return block_tokens_; }
  Position tokens() const { return tokens_; }
  // Of the complete blocks, from the first.
  std::span<const BlockKey> keys() const { return keys_; }
  // Names the state behind the last token, wherever in a block that is. Never equal to a block's key.
  BlockKey StateKey() const;

 private:
  void Seal();
  std::vector<uint8_t> Preimage(uint8_t kind) const;

  BlockKey root_;
  uint32_t block_tokens_;
  Position tokens_ = 0;
  std::vector<TokenId> tail_;  // of the incomplete block
  std::vector<Media> media_;   // that begin in it
  std::vector<BlockKey> keys_;
};

}  // namespace weir::kv
