// SPDX-License-Identifier: Apache-2.0
#include "codec/token/piece_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weir::codec {
namespace {

size_t SlotsFor(size_t entries) { return std::bit_ceil(std::max<size_t>(16, entries * 2)); }

uint64_t HashLong(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15ULL;
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    hash = (hash ^ LoadAs<uint64_t>(p)) * 0xFF51AFD7ED558CCDULL;
    hash ^= hash >> 32;
  }
  uint64_t tail = 0;
  std::memcpy(&tail, p, left);
  hash = (hash ^ tail) * 0xFF51AFD7ED558CCDULL;
  return hash ^ (hash >> 29);
}

}  // namespace

PieceTable PieceTable::Build(const std::vector<std::pair<std::string_view, TokenId>>& tokens) {
  PieceTable table;
  size_t shorts = 0;
  for (const auto& [bytes, id] : tokens) shorts += bytes.size() <= kShortMax;
  table.shorts_.resize(SlotsFor(shorts));
  table.longs_.resize(SlotsFor(tokens.size() - shorts));
  table.short_mask_ = static_cast<uint32_t>(table.shorts_.size() - 1);
  table.short_shift_ = 64 - std::countr_zero(table.shorts_.size());
  const size_t long_mask = table.longs_.size() - 1;
  for (const auto& [bytes, id] : tokens) {
    if (bytes.size() <= kShortMax) {
      const Key key = table.KeyOf(bytes.data(), bytes.size());
      uint32_t slot = key.slot;
      while (table.shorts_[slot].size != 0) slot = (slot + 1) & table.short_mask_;
      table.shorts_[slot] = {key.low, key.high, key.size, id};
    } else {
      size_t slot = HashLong(bytes) & long_mask;
      while (table.longs_[slot].id >= 0) slot = (slot + 1) & long_mask;
      table.longs_[slot] = {static_cast<uint32_t>(table.long_bytes_.size()),
                            static_cast<uint32_t>(bytes.size()), id};
      table.long_bytes_ += bytes;
    }
  }
  return table;
}

TokenId PieceTable::FindLong(std::string_view piece) const {
  const size_t mask = longs_.size() - 1;
  for (size_t slot = HashLong(piece) & mask;; slot = (slot + 1) & mask) {
    const Long& entry = longs_[slot];
    if (entry.id < 0) return -1;
    if (entry.size == piece.size() &&
        std::memcmp(long_bytes_.data() + entry.offset, piece.data(), piece.size()) == 0) {
      return entry.id;
    }
  }
}

}  // namespace weir::codec
