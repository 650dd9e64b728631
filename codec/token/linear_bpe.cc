// SPDX-License-Identifier: Apache-2.0
#include "codec/token/linear_bpe.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/stdx/check.h"

namespace weir::codec {
namespace {

constexpr int kSymbolBits = 21;
constexpr uint64_t kSymbolMask = (uint64_t{1} << kSymbolBits) - 1;
constexpr uint64_t kFreePair = ~uint64_t{0};

uint64_t PairOf(Symbol left, Symbol right) { return uint64_t{left} << kSymbolBits | right; }
uint64_t HashPair(uint64_t pair) { return pair * 0x9E3779B97F4A7C15ULL; }

// Places of a piece from which there is no way on.
struct WordOfMarks {
  uint64_t bits = 0;
  bool Get(size_t at) const { return (bits >> at & 1) != 0; }
  void Set(size_t at) { bits |= uint64_t{1} << at; }
};
struct RowOfMarks {
  explicit RowOfMarks(size_t size) : bits(size) {}
  std::vector<bool> bits;
  bool Get(size_t at) const { return bits[at]; }
  void Set(size_t at) { bits[at] = true; }
};

}  // namespace

std::optional<LinearBpe> LinearBpe::Create(const std::array<TokenId, 256>& byte_ids,
                                           const std::vector<Merge>& merges, const Vocab& vocab,
                                           const MergeTable& reference) {
  if (merges.size() + kBytes >= kSymbolMask) return std::nullopt;
  LinearBpe bpe;
  bpe.ids_.assign(byte_ids.begin(), byte_ids.end());
  if (!bpe.AddSymbols(merges, vocab)) return std::nullopt;
  bpe.AddPairs(merges);
  if (!bpe.AddTrie(vocab, reference)) return std::nullopt;
  return bpe;
}

bool LinearBpe::AddSymbols(const std::vector<Merge>& merges, const Vocab& vocab) {
  absl::flat_hash_map<TokenId, Symbol> symbols;
  for (Symbol byte = 0; byte < kBytes; ++byte) {
    tokens_.push_back({byte, byte, kNoSymbol, 1});
    if (!symbols.emplace(ids_[byte], byte).second) return false;
  }
  for (const Merge& merge : merges) {
    const auto left = symbols.find(merge.left);
    const auto right = symbols.find(merge.right);
    if (left == symbols.end() || right == symbols.end()) return false;
    const auto symbol = static_cast<Symbol>(tokens_.size());
    const uint32_t size = tokens_[left->second].size + tokens_[right->second].size;
    if (vocab.IsAdded(merge.merged) || vocab.BytesOf(merge.merged).size() != size) return false;
    tokens_.push_back({left->second, right->second, kNoSymbol, size});
    ids_.push_back(merge.merged);
    if (!symbols.emplace(merge.merged, symbol).second) return false;
  }
  return true;
}

void LinearBpe::AddPairs(const std::vector<Merge>& merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, merges.size() * 2));
  pairs_.assign(slots, kFreePair);
  pairs_shift_ = 64 - std::countr_zero(slots);
  filter_.assign(slots / 8, 0);  // eight bits a slot
  for (auto symbol = kBytes; symbol < tokens_.size(); ++symbol) {
    const uint64_t pair = PairOf(tokens_[symbol].left, tokens_[symbol].right);
    const uint64_t hash = HashPair(pair);
    uint64_t slot = hash >> pairs_shift_;
    while (pairs_[slot] != kFreePair) slot = (slot + 1) & (slots - 1);
    pairs_[slot] = pair << kSymbolBits | symbol;
    const uint64_t bit = hash >> (pairs_shift_ - 3);
    filter_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

bool LinearBpe::AddTrie(const Vocab& vocab, const MergeTable& reference) {
  std::vector<std::pair<std::string_view, Symbol>> tokens;
  std::string bytes(kBytes, '\0');
  for (Symbol byte = 0; byte < kBytes; ++byte) {
    bytes[byte] = static_cast<char>(byte);
    tokens.emplace_back(std::string_view(bytes).substr(byte, 1), byte);
  }
  std::vector<TokenId> own;
  for (auto symbol = kBytes; symbol < tokens_.size(); ++symbol) {
    const std::string_view text = vocab.BytesOf(ids_[symbol]);
    own.clear();
    reference.Encode(text, &own);
    if (own.size() != 1 || own[0] != ids_[symbol]) return false;
    tokens.emplace_back(text, symbol);
  }
  trie_ = TokenTrie::Build(tokens);
  std::vector<std::string_view> texts;
  for (const auto& [text, symbol] : tokens) texts.push_back(text);
  junctions_ = Junctions::Build(texts);
  for (const auto& [text, symbol] : tokens) {
    if (text.size() < 2) continue;
    tokens_[symbol].shorter = 
        trie_.Longest(text.data(), text.data() + text.size() - 1).symbol;
  }
  return true;
}

inline Symbol LinearBpe::Product(Symbol left, Symbol right) const {
  const uint64_t pair = PairOf(left, right);
  const uint64_t hash = HashPair(pair);
  const uint64_t bit = hash >> (pairs_shift_ - 3);
  if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return kNoSymbol;
  for (uint64_t slot = hash >> pairs_shift_;; slot = (slot + 1) & (pairs_.size() - 1)) {
    const uint64_t entry = pairs_[slot];
    if (entry >> kSymbolBits == pair) return static_cast<Symbol>(entry & kSymbolMask);
    if (entry == kFreePair) return kNoSymbol;
  }
}

inline bool LinearBpe::Fit(Symbol left, Symbol right) const {
  // Merges across the border that come before `limit` would have happened. Of two equal merges the
  // left one comes first, hence the + 1.
  Symbol limit = kNoSymbol;
  for (;;) {
    if (Product(left, right) < limit) return false;
    const bool left_is_later = left > right;
    for (int side = 0;; ++side) {
      if ((side == 0) == left_is_later) {
        limit = left;
        left = tokens_[left].right;
        if (left != limit) break;
      } else {
        limit = right + 1;
        right = tokens_[right].left;
        if (right + 1 != limit) break;
      }
      if (side == 1) return true;  // both are single bytes
    }
  }
}

template <class Stack, class Marks>
size_t LinearBpe::Walk(std::string_view piece, Stack* stack, Marks* dead) const {
  const char* const begin = piece.data();
  const char* const end = begin + piece.size();
  size_t count = 0;
  const char* at = begin;
  TokenTrie::Found next = trie_.Longest(at, end);
  for (;;) {
    const bool fits = (next.end == end || !dead->Get(static_cast<size_t>(next.end - begin))) &&
                      (count == 0 || junctions_.NeverSpanned(begin, at, end) ||
                       Fit((*stack)[count - 1], next.symbol));
    if (fits) {
      (*stack)[count++] = next.symbol;
      at = next.end;
      if (at == end) return count;
      next = trie_.Longest(at, end);
      continue;
    }
    next.symbol = tokens_[next.symbol].shorter;
    if (next.symbol != kNoSymbol) {
      next.end = at + tokens_[next.symbol].size;
      continue;
    }
    // No way on from here: give up the token before and try a shorter one in its place.
    WEIR_CHECK(count > 0);
    dead->Set(static_cast<size_t>(at - begin));
    next = {(*stack)[--count], at};
    at -= tokens_[next.symbol].size;
  }
}

void LinearBpe::Encode(std::string_view piece, std::vector<TokenId>* out) const {
  if (piece.empty()) return;
  if (piece.size() <= kSmallPiece) {
    std::array<Symbol, kSmallPiece> stack;
    WordOfMarks dead;
    const size_t count = Walk(piece, &stack, &dead);
    for (size_t i = 0; i < count; ++i) out->push_back(ids_[stack[i]]);
    return;
  }
  std::vector<Symbol> stack(piece.size());
  RowOfMarks dead(piece.size());
  const size_t count = Walk(piece, &stack, &dead);
  for (size_t i = 0; i < count; ++i) out->push_back(ids_[stack[i]]);
}

}  // namespace weir::codec
