// SPDX-License-Identifier: Apache-2.0
#include "codec/token/token_trie.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace weir::codec {
namespace {

// Bits by position that can be read 64 at a time from anywhere.
class BitRow {
 public:
  bool Get(size_t at) const { return (words_[at / 64] >> (at % 64) & 1) != 0; }
  void Set(size_t at) { words_[at / 64] |= uint64_t{1} << (at % 64); }
  void GrowTo(size_t bits) { words_.resize(bits / 64 + 2); }
  uint64_t From(size_t at) const {
    const size_t word = at / 64;
    const size_t shift = at % 64;
    if (shift == 0) return words_[word];
    return words_[word] >> shift | words_[word + 1] << (64 - shift);
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace

// Places nodes first-fit, 64 bases at a time.
class TrieBuilder {
 public:
  explicit TrieBuilder(std::vector<std::pair<std::string_view, Symbol>> tokens)
      : tokens_(std::move(tokens)) {
    std::sort(tokens_.begin(), tokens_.end());
    Grow(4096);
  }

  TokenTrie Build() {
    std::priority_queue<Span> open;
    open.push({0, tokens_.size(), 0, kRoot, 0});
    while (!open.empty()) {
      const Span span = open.top();
      open.pop();
      Place(span, &open);
    }
    trie_.nodes_.resize(last_base_ + 256);
    return std::move(trie_);
  }

 private:
  static constexpr uint32_t kRoot = 0xFFFFFFFF;
  // How far before the end a place for several children is looked for; single ones fill the rest.
  static constexpr size_t kLookBack = 4096;

  // The tokens that share the first `depth` bytes, which lead to `node`.
  struct Span {
    size_t begin;
    size_t end;
    size_t depth;
    uint32_t node;
    Symbol lowest;  // of their symbols
    bool operator<(const Span& other) const { return lowest > other.lowest; }  // lowest on top
  };

  void Grow(size_t size) {
    trie_.nodes_.resize(size);
    used_.GrowTo(size + 512);
    bases_.GrowTo(size + 512);
  }

  void Place(Span span, std::priority_queue<Span>* open) {
    if (span.node != kRoot && tokens_[span.begin].first.size() == span.depth) {
      trie_.nodes_[span.node].symbol = tokens_[span.begin].second;
      ++span.begin;
    }
    if (span.begin == span.end) return;
    children_.clear();
    for (size_t i = span.begin; i < span.end;) {
      const auto byte = static_cast<uint8_t>(tokens_[i].first[span.depth]);
      Span child{i, i, span.depth + 1, byte, kNoSymbol};
      while (i < span.end && static_cast<uint8_t>(tokens_[i].first[span.depth]) == byte) {
        child.lowest = std::min(child.lowest, tokens_[i++].second);
      }
      child.end = i;
      children_.push_back(child);
    }
    const uint32_t base = FindBase();
    (span.node == kRoot ? trie_.root_ : trie_.nodes_[span.node].base) = base;
    for (Span child : children_) {
      const uint32_t label = child.node;
      child.node = base + label;
      used_.Set(child.node);
      trie_.nodes_[child.node].label = label;
      open->push(child);
    }
  }

  // A base at which every child's place is free and that no other parent has.
  uint32_t FindBase() {
    while (low_ / 64 < trie_.nodes_.size() / 64 && used_.From(low_) == ~uint64_t{0}) low_ += 64;
    size_t from = std::max<size_t>(256, low_ > 256 ? low_ - 256 : 0);
    if (children_.size() > 1 && last_base_ > from + kLookBack) from = last_base_ - kLookBack;
    for (size_t base = from;; base += 64) {
      if (base + 64 + 256 > trie_.nodes_.size()) Grow(trie_.nodes_.size() * 2);
      uint64_t taken = bases_.From(base);
      for (const Span& child : children_) {
        taken |= used_.From(base + child.node);
        if (taken == ~uint64_t{0}) break;
      }
      if (taken == ~uint64_t{0}) continue;
      const auto found = static_cast<uint32_t>(base) + static_cast<uint32_t>(std::countr_one(taken));
      bases_.Set(found);
      last_base_ = std::max(last_base_, found);
      return found;
    }
  }

  std::vector<std::pair<std::string_view, Symbol>> tokens_;
  std::vector<Span> children_;  // of the node being placed; `node` holds the byte
  TokenTrie trie_;
  BitRow used_;
  BitRow bases_;
  size_t low_ = 256;  // everything in 256..low_ is used
  uint32_t last_base_ = 0;
};

TokenTrie TokenTrie::Build(std::vector<std::pair<std::string_view, Symbol>> tokens) {
  return TrieBuilder(std::move(tokens)).Build();
}

}  // namespace weir::codec
