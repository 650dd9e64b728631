// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary of a checkpoint: token id to bytes, the added (control) tokens by their spelling,
// and the digest by which peers agree. Immutable once loaded and shared by const pointer between
// threads; it never blocks. A file that is not a byte-level BPE tokenizer.json is refused at load.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/stdx/hash.h"
#include "base/stdx/ids.h"

namespace weir::codec {

// What the loader hands over; ids are dense enough to index a vector.
struct VocabEntry {
  TokenId id = 0;
  std::string bytes;  // what the token stands for in text; an added token's own spelling
  bool added = false;
};

class Vocab {
 public:
  static absl::StatusOr<Vocab> Create(std::vector<VocabEntry> entries, const Sha256Digest& digest);

  // One past the largest id. A model's logits may be wider; those ids have no bytes.
  TokenId size() const { return static_cast<TokenId>(spans_.size()); }

  // The bytes of a token, valid as long as the vocabulary; empty for ids without an entry. Added
  // tokens give their spelling.
  std::string_view BytesOf(TokenId id) const {
    if (id < 0 || id >= size()) return {};
    const Span& span = spans_[static_cast<size_t>(id)];
    return std::string_view(arena_).substr(span.offset, span.size);
  }
  bool IsAdded(TokenId id) const {
    return id >= 0 && id < size() && spans_[static_cast<size_t>(id)].added;
  }

  // The added token spelt exactly so.
  std::optional<TokenId> FindAdded(std::string_view spelling) const;
  const std::vector<std::pair<std::string, TokenId>>& added() const { return added_; }

  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  std::optional<TokenId> pad() const { return pad_; }
  // Begin, end and padding marks: they never appear in an answer's text.
  bool IsSilent(TokenId id) const { return id == bos_ || id == eos_ || id == pad_; }

  const Sha256Digest& digest() const { return digest_; }

 private:
  struct Span {
    uint32_t offset = 0;
    uint32_t size : 31 = 0;
    uint32_t added : 1 = 0;
  };

  Vocab() = default;

  std::string arena_;
  std::vector<Span> spans_;
  std::vector<std::pair<std::string, TokenId>> added_;  // in id order
  absl::flat_hash_map<std::string, TokenId> added_by_spelling_;
  std::optional<TokenId> bos_, eos_, pad_;
  Sha256Digest digest_{};
};

// Spellings of control tokens (bars are U+FF5C, low blocks U+2581).
inline constexpr std::string_view kBosToken = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEosToken = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kPadToken = "<｜▁pad▁｜>";
inline constexpr std::string_view kSystemToken = "<｜System｜>";
inline constexpr std::string_view kUserToken = "<｜User｜>";
inline constexpr std::string_view kAssistantToken = "<｜Assistant｜>";
inline constexpr std::string_view kReminderToken = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkToken = "<think>";
inline constexpr std::string_view kThinkEndToken = "</think>";
inline constexpr std::string_view kDsmlToken = "｜DSML｜";
inline constexpr std::string_view kImageToken = "<｜image｜>";
inline constexpr std::string_view kFimBeginToken = "<｜fim▁begin｜>";
inline constexpr std::string_view kFimHoleToken = "<｜fim▁hole｜>";
inline constexpr std::string_view kFimEndToken = "<｜fim▁end｜>";
inline constexpr std::string_view kToolCallsBeginToken = "<｜tool▁calls▁begin｜>";
inline constexpr std::string_view kToolCallsEndToken = "<｜tool▁calls▁end｜>";
inline constexpr std::string_view kToolCallBeginToken = "<｜tool▁call▁begin｜>";
inline constexpr std::string_view kToolCallEndToken = "<｜tool▁call▁end｜>";
inline constexpr std::string_view kToolOutputsBeginToken = "<｜tool▁outputs▁begin｜>";
inline constexpr std::string_view kToolOutputsEndToken = "<｜tool▁outputs▁end｜>";
inline constexpr std::string_view kToolOutputBeginToken = "<｜tool▁output▁begin｜>";
inline constexpr std::string_view kToolOutputEndToken = "<｜tool▁output▁end｜>";
inline constexpr std::string_view kToolSepToken = "<｜tool▁sep｜>";

}  // namespace weir::codec
