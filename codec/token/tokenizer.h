// SPDX-License-Identifier: Apache-2.0
//
// Text to token ids and back, exactly as the checkpoint's own tokenizer: DeepSeek's pre-tokenizer
// (or none) followed by byte-level BPE. Immutable after loading and shared by const pointer; every
// method may be called from any thread and never blocks. Encoding cannot fail: bytes that are not
// UTF-8 count as unclassified characters and round-trip unchanged.
//
// A text's ids cost 5 to 20 ns each, the first time as ever after, in time linear in its length.
//
// Encode never yields an added token, whatever the text says, so a client cannot forge a control
// token; templates place control tokens by id. EncodeTrusted is for tools and tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/stdx/ids.h"
#include "codec/token/vocab.h"

namespace weir::codec {

class PieceEncoder;

enum class PreTokenizer : uint8_t {
  kNone,      // the whole text is one piece
  kDeepSeek,  // digits by three, CJK runs, then words, punctuation and spaces
};

class Tokenizer {
 public:
  // `json` is the content of a Hugging Face tokenizer.json; `size_max` of FromFile is 256 MiB.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> FromJson(std::string_view json);
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> FromFile(const std::string& path);
  // For a checkpoint without a tokenizer: ids only, each shown as a space and its number. Text
  // cannot be encoded (can_encode() is false).
  static std::shared_ptr<const Tokenizer> IdsOnly(TokenId vocab_size, TokenId bos, TokenId eos);

  ~Tokenizer();

  const Vocab& vocab() const { return vocab_; }
  bool can_encode() const { return encoder_ != nullptr; }

  // Appends the ids of `text`. Where `out` would come to have more than `ids_max`, it gets some more
  // than that and the rest of the text costs nothing.
  void Encode(std::string_view text, std::vector<TokenId>* out, size_t ids_max = SIZE_MAX) const;
  // The first place at or after `from` (at least 1) where a text may be cut: both sides encoded
  // apart give its ids, also when whole characters are appended later. The size of the text if
  // there is none.
  size_t SafeCut(std::string_view text, size_t from) const;
  // As Encode, but spellings of added tokens become those tokens.
  void EncodeTrusted(std::string_view text, std::vector<TokenId>* out) const;
  std::vector<TokenId> EncodeTrusted(std::string_view text) const;

  // The bytes of all ids joined; they need not be UTF-8 when the ids stop inside a character.
  std::string Decode(const std::vector<TokenId>& ids) const;

 private:
  Tokenizer(Vocab vocab, PreTokenizer kind, std::unique_ptr<const PieceEncoder> encoder);

  Vocab vocab_;
  PreTokenizer kind_;
  size_t longest_ = 1;  // bytes of one token
  std::unique_ptr<const PieceEncoder> encoder_;
};

}  // namespace weir::codec
