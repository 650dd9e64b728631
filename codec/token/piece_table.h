// SPDX-License-Identifier: Apache-2.0
//
// The pieces that are one token as they stand, by their bytes: nine of ten in prose. Immutable after
// Build, any thread. Keys of up to 16 bytes lie in the table itself, so that a look-up is one line
// of memory, and the caller may ask for that line some pieces ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/stdx/bytes.h"
#include "base/stdx/ids.h"

namespace weir::codec {

class PieceTable {
 public:
  static constexpr size_t kShortMax = 16;

  // The bytes of a piece as two words that, with its length, no other piece has.
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
    uint32_t size = 0;
    uint32_t slot = 0;
  };

  // `tokens` have distinct bytes of at least two.
  static PieceTable Build(const std::vector<std::pair<std::string_view, TokenId>>& tokens);

  // 2..kShortMax bytes. Starts fetching the slot.
  Key KeyOf(const char* bytes, size_t size) const {
    Key key;
    key.size = static_cast<uint32_t>(size);
    if (size >= 8) {
      key.low = LoadAs<uint64_t>(bytes);
      key.high = LoadAs<uint64_t>(bytes + size - 8);  // overlaps unless 16
    } else if (size >= 4) {
      key.low = LoadAs<uint32_t>(bytes);
      key.high = LoadAs<uint32_t>(bytes + size - 4);
    } else {
      key.low = LoadAs<uint16_t>(bytes);
      key.high = static_cast<uint8_t>(bytes[size - 1]);
    }
    uint64_t hash = (key.low ^ size) * 0x9E3779B97F4A7C15ULL;
    hash = (hash ^ (hash >> 32) ^ key.high) * 0xD6E8FEB86659FD93ULL;
    key.slot = static_cast<uint32_t>(hash >> short_shift_);
    __builtin_prefetch(&shorts_[key.slot]);
    return key;
  }

  // -1 if the piece is not one token.
  TokenId Find(const Key& key) const {
    for (uint32_t slot = key.slot;; slot = (slot + 1) & short_mask_) {
      const Short& entry = shorts_[slot];
      if (entry.low == key.low && entry.high == key.high && entry.size == key.size) return entry.id;
      if (entry.size == 0) return -1;
    }
  }
  // More than kShortMax bytes.
  TokenId FindLong(std::string_view piece) const;

 private:
  struct Short {
    uint64_t low = 0;
    uint64_t high = 0;
    uint32_t size = 0;  // 0: free
    TokenId id = -1;
  };
  struct Long {
    uint32_t offset = 0;
    uint32_t size = 0;
    TokenId id = -1;  // -1: free
  };

  std::vector<Short> shorts_;  // open addressing, powers of two, at most half full
  std::vector<Long> longs_;
  std::string long_bytes_;
  uint32_t short_mask_ = 0;
  int short_shift_ = 0;
};

}  // namespace weir::codec
