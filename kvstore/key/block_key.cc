// SPDX-License-Identifier: Apache-2.0
#include "kvstore/key/block_key.h"

#include <algorithm>

#include "base/stdx/check.h"

namespace weir::kv {
namespace {

constexpr uint8_t kBlockKind = 1;
constexpr uint8_t kStateKind = 2;

void PutU32(uint32_t value, std::vector<uint8_t>* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<uint8_t>(value >> shift));
}

}  // namespace

std::string HexOf(const BlockKey& key) { return weir::HexOf(std::span<const uint8_t>(key.bytes)); }

KeyChain::KeyChain(const BlockKey& root, uint32_t block_tokens)
    : root_(root), block_tokens_(block_tokens) {
  WEIR_CHECK(block_tokens > 0);
  tail_.reserve(block_tokens);
}

void KeyChain::Append(std::span<const TokenId> tokens, std::span<const Media> media) {
  while (!tokens.empty()) {
    const size_t take = std::min<size_t>(tokens.size(), block_tokens_ - tail_.size());
    tail_.insert(tail_.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(take));
    tokens = tokens.subspan(take);
    const Position before = tokens_;
    tokens_ += static_cast<Position>(take);
    while (!media.empty() && media.front().first < tokens_) {
      WEIR_CHECK(media.front().first >= before);
      media_.push_back(media.front());
      media = media.subspan(1);
    }
    if (tail_.size() == block_tokens_) Seal();
  }
  WEIR_CHECK(media.empty());
}

void KeyChain::Seal() {
  const std::vector<uint8_t> bytes = Preimage(kBlockKind);
  keys_.push_back({Sha256(std::as_bytes(std::span(bytes)))});
  tail_.clear();
  media_.clear();
}

BlockKey KeyChain::StateKey() const {
  const std::vector<uint8_t> bytes = Preimage(kStateKind);
  return {Sha256(std::as_bytes(std::span(bytes)))};
}

std::vector<uint8_t> KeyChain::Preimage(uint8_t kind) const {
  const BlockKey& parent = keys_.empty() ? root_ : keys_.back();
  std::vector<uint8_t> out;
  out.reserve(1 + parent.bytes.size() + tail_.size() * 4 + media_.size() * 40);
  out.push_back(kind);
  out.insert(out.end(), parent.bytes.begin(), parent.bytes.end());
  for (const TokenId token : tail_) PutU32(static_cast<uint32_t>(token), &out);
  const Position block = tokens_ - static_cast<Position>(tail_.size());
  for (const Media& media : media_) {
    PutU32(media.first - block, &out);
    PutU32(media.tokens, &out);
    out.insert(out.end(), media.digest.begin(), media.digest.end());
  }
  return out;
}

}  // namespace weir::kv
