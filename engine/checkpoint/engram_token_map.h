// SPDX-License-Identifier: Apache-2.0
//
// The compressed id of every token, which Engram's n-gram hash reads in the token's place: tokens
// whose texts differ only in case, marks, width or blanks share one. No file of a checkpoint holds
// it; it follows from tokenizer.json, and the tables are worthless under any other. Blocks on the
// disk and for a fraction of a second of work; any thread. Errors name the file or field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/stdx/status.h"
#include "codec/token/vocab.h"
#include "engine/checkpoint/deepseek_v41_config.h"

namespace weir::engine {

// Of ids 0 .. `ids` - 1, numbered in order of first appearance. Ids that the vocabulary lacks, such
// as those that only round vocab_size up, take what `pad` has (0 if it lacks that too).
std::vector<int32_t> EngramTokenMap(const codec::Vocab& vocab, size_t ids, TokenId pad);

// Of `directory`'s tokenizer.json, with vocab_size entries. Refused unless it has exactly the
// engram_compressed_vocab_size ids that the tables were made for.
absl::StatusOr<std::vector<int32_t>> ReadEngramTokenMap(const std::string& directory,
                                                        const DeepseekV41Config& config);

}  // namespace weir::engine
