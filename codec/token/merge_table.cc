// SPDX-License-Identifier: Apache-2.0
#include "codec/token/merge_table.h"

#include <algorithm>
#include <cstring>
#include <queue>

#include "base/stdx/check.h"

namespace weir::codec {
namespace {

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t HashKey(uint64_t key) {
  key *= 0x9E3779B97F4A7C15ULL;
  return key ^ (key >> 29);
}

size_t TableSize(size_t entries) {
  size_t size = 16;
  while (size < entries * 2) size *= 2;
  return size;
}

}  // namespace

MergeTable MergeTable::Build(const std::array<TokenId, 256>& byte_ids,
                             const std::vector<Merge>& merges) {
  MergeTable table;
  table.byte_ids_ = byte_ids;
  table.pairs_.resize(TableSize(merges.size()));
  table.merged_.reserve(merges.size());
  const uint64_t mask = table.pairs_.size() - 1;
  for (const Merge& merge : merges) {
    const auto rank = static_cast<uint32_t>(table.merged_.size());
    table.merged_.push_back(merge.merged);
    const uint64_t key = PairKey(merge.left, merge.right);
    uint64_t slot = HashKey(key) & mask;
    while (table.pairs_[slot].rank != kNoRank && table.pairs_[slot].key != key) {
      slot = (slot + 1) & mask;
    }
    if (table.pairs_[slot].rank == kNoRank) table.pairs_[slot] = {key, rank};
  }
  return table;
}

uint32_t MergeTable::RankOf(TokenId left, TokenId right) const {
  const uint64_t key = PairKey(left, right);
  const uint64_t mask = pairs_.size() - 1;
  for (uint64_t slot = HashKey(key) & mask;; slot = (slot + 1) & mask) {
    const Pair& pair = pairs_[slot];
    if (pair.key == key) return pair.rank;
    if (pair.rank == kNoRank) return kNoRank;
  }
}

void MergeTable::Encode(std::string_view piece, std::vector<TokenId>* out) const {
  if (piece.empty()) return;
  if (piece.size() <= kSmallPiece) {
    EncodeSmall(piece, out);
  } else {
    EncodeLarge(piece, out);
  }
}

void MergeTable::EncodeSmall(std::string_view piece, std::vector<TokenId>* out) const {
  TokenId ids[kSmallPiece];
  uint32_t ranks[kSmallPiece];  // ranks[i]: of the pair (i, i + 1)
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) ids[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = RankOf(ids[i], ids[i + 1]);
  while (count > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + count - 1) - ranks);
    if (ranks[best] == kNoRank) break;
    ids[best] = merged_[ranks[best]];
    // Pair best is gone: token best + 1 and its rank leave, the neighbours' ranks are new.
    std::memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof(TokenId));
    if (best + 2 < count) {
      std::memmove(ranks + best, ranks + best + 1, (count - best - 2) * sizeof(uint32_t));
    }
    --count;
    if (best + 1 < count) ranks[best] = RankOf(ids[best], ids[best + 1]);
    if (best > 0) ranks[best - 1] = RankOf(ids[best - 1], ids[best]);
  }
  out->insert(out->end(), ids, ids + count);
}

void MergeTable::EncodeLarge(std::string_view piece, std::vector<TokenId>* out) const {
  constexpr uint32_t kEnd = 0xFFFFFFFF;
  WEIR_CHECK(piece.size() < kEnd);
  const auto count = static_cast<uint32_t>(piece.size());
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    TokenId left;
    TokenId right;
    bool operator<(const Candidate& other) const {  // lowest rank, then leftmost, on top
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<TokenId> ids(count);
  std::vector<uint32_t> next(count);
  std::vector<uint32_t> previous(count);
  for (uint32_t i = 0; i < count; ++i) {
    ids[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
    next[i] = i + 1 < count ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
  }
  std::vector<Candidate> first;
  first.reserve(count);
  const auto candidate_at = [&](uint32_t i, auto&& add) {
    if (next[i] == kEnd) return;
    const uint32_t rank = RankOf(ids[i], ids[next[i]]);
    if (rank != kNoRank) add(Candidate{rank, i, ids[i], ids[next[i]]});
  };
  for (uint32_t i = 0; i + 1 < count; ++i) {
    candidate_at(i, [&](Candidate c) { first.push_back(c); });
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const uint32_t i = top.at;
    // Stale entries name ids that are no longer there.
    if (ids[i] != top.left || next[i] == kEnd || ids[next[i]] != top.right) continue;
    const uint32_t gone = next[i];
    ids[i] = merged_[top.rank];
    ids[gone] = -1;
    next[i] = next[gone];
    if (next[i] != kEnd) previous[next[i]] = i;
    const auto add = [&](Candidate c) { queue.push(c); };
    if (previous[i] != kEnd) candidate_at(previous[i], add);
    candidate_at(i, add);
  }
  for (uint32_t i = 0; i != kEnd; i = next[i]) out->push_back(ids[i]);
}

}  // namespace weir::codec
