// SPDX-License-Identifier: Apache-2.0
//
// HashOracle: what the hash model must say. The slow twin of HashModel: a pure function of prompt,
// sampling and tail start, one row at a time over plain vectors, without pages, rings, batches,
// chunks or drafts. One thread; grows with the sequence; cannot fail.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/hash_rules.h"

namespace weir::engine {

class HashOracle {
 public:
  HashOracle(const HashConfig& config, std::span<const TokenId> prompt, Position tail_start,
             const SamplingParams& sampling);

  // The answer: `new_tokens_max` tokens, or those before a stop token. Resumable: a larger maximum
  // continues where the last call ended.
  const std::vector<TokenId>& Answer(uint32_t new_tokens_max);
  bool stopped() const { return stopped_; }
  // One per token of the answer, where the sampling asks for them.
  const std::vector<TokenScore>& scores() const { return scores_; }

 private:
  struct Access;

  uint64_t Append(TokenId token);

  const HashConfig config_;
  const HashBounds bounds_;
  const SamplingParams sampling_;
  const Position prompt_tokens_;
  Position length_ = 0;
  uint64_t hidden_ = 0;
  bool stopped_ = false;
  std::vector<HashRow> rows_[6][2];  // by store and layer, indexed by position
  std::vector<TokenId> answer_;
  std::vector<TokenScore> scores_;
};

}  // namespace weir::engine
