// SPDX-License-Identifier: Apache-2.0
#include "codec/token/vocab.h"

#include <algorithm>

#include "base/stdx/status.h"

namespace weir::codec {
namespace {

// Ids index a vector, so a wild id must not size it: 2^22 is 32 times the real vocabulary.
constexpr TokenId kIdMax = TokenId{1} << 22;
constexpr size_t kArenaMax = size_t{256} << 20;
constexpr size_t kTokenBytesMax = 65536;

}  // namespace

absl::StatusOr<Vocab> Vocab::Create(std::vector<VocabEntry> entries, const Sha256Digest& digest) {
  Vocab vocab;
  vocab.digest_ = digest;
  for (const VocabEntry& entry : entries) {
    if (entry.id < 0 || entry.id >= kIdMax || entry.bytes.size() > kTokenBytesMax) {
      return Error(Reason::kBadField,
                   "tokenizer: token id " + std::to_string(entry.id) + " is out of range");
    }
    const auto index = static_cast<size_t>(entry.id);
    if (index >= vocab.spans_.size()) vocab.spans_.resize(index + 1);
    if (vocab.arena_.size() + entry.bytes.size() > kArenaMax) {
      return Error(Reason::kTooLarge, "tokenizer: the vocabulary is larger than 256 MiB");
    }
    Span& span = vocab.spans_[index];
    span.offset = static_cast<uint32_t>(vocab.arena_.size());
    span.size = static_cast<uint32_t>(entry.bytes.size());
    span.added = entry.added ? 1 : 0;
    vocab.arena_ += entry.bytes;
    if (entry.added) {
      vocab.added_.emplace_back(entry.bytes, entry.id);
      vocab.added_by_spelling_[entry.bytes] = entry.id;
    }
  }
  std::sort(vocab.added_.begin(), vocab.added_.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  vocab.bos_ = vocab.FindAdded(kBosToken);
  vocab.eos_ = vocab.FindAdded(kEosToken);
  vocab.pad_ = vocab.FindAdded(kPadToken);
  return vocab;
}

std::optional<TokenId> Vocab::FindAdded(std::string_view spelling) const {
  const auto found = added_by_spelling_.find(std::string(spelling));
  if (found == added_by_spelling_.end()) return std::nullopt;
  return found->second;
}

}  // namespace weir::codec
