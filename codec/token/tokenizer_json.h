// SPDX-License-Identifier: Apache-2.0
//
// Reads a Hugging Face tokenizer.json of the kinds that DeepSeek checkpoints have. Blocks for the
// tens of milliseconds that parsing takes; pure otherwise. A file with a step that this tokenizer
// does not do (a normaliser, another pre-tokenizer, byte fallback) is refused rather than
// approximated.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "codec/token/merge_table.h"
#include "codec/token/tokenizer.h"
#include "codec/token/vocab.h"

namespace weir::codec {

struct TokenizerFile {
  std::vector<VocabEntry> entries;
  std::array<TokenId, 256> byte_ids{};
  std::vector<Merge> merges;  // in rank order
  PreTokenizer pre_tokenizer = PreTokenizer::kNone;
};

absl::StatusOr<TokenizerFile> ReadTokenizerJson(std::string_view json);

// How model.vocab spells `bytes`: in GPT-2's alphabet, a printable character for every byte.
std::string ByteLevelSpelling(std::string_view bytes);

}  // namespace weir::codec
