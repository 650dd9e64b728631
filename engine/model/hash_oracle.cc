// SPDX-License-Identifier: Apache-2.0
#include "engine/model/hash_oracle.h"

#include <algorithm>

namespace weir::engine {

struct HashOracle::Access {
  std::vector<HashRow> (&rows)[6][2];

  HashRow Ring(HashStore store, int layer, Position position) const {
    return rows[store][layer][position];
  }
  void SetRing(HashStore store, int layer, Position position, const HashRow& row) {
    auto& all = rows[store][layer];
    if (all.size() <= position) all.resize(position + 1);
    all[position] = row;
  }
  HashRow Block(HashStore store, Position position) const { return rows[store][0][position]; }
  void SetBlock(HashStore store, Position position, const HashRow& row) {
    SetRing(store, 0, position, row);
  }
};

HashOracle::HashOracle(const HashConfig& config, std::span<const TokenId> prompt,
                       Position tail_start, const SamplingParams& sampling)
    : config_(config),
      bounds_{tail_start, 0, 0},
      sampling_(sampling),
      prompt_tokens_(static_cast<Position>(prompt.size())) {
  for (const TokenId token : prompt) hidden_ = Append(token);
}

uint64_t HashOracle::Append(TokenId token) {
  Access access{rows_};
  return ComputeHashRow(config_, access, length_++, token, bounds_);
}

const std::vector<TokenId>& HashOracle::Answer(uint32_t new_tokens_max) {
  while (!stopped_ && answer_.size() < new_tokens_max) {
    // The last token of an answer is never computed: nobody asks what follows it.
    if (!answer_.empty() && length_ < prompt_tokens_ + answer_.size()) {
      hidden_ = Append(answer_.back());
    }
    TokenScore score;
    const TokenId token =
        ChooseHashToken(config_, hidden_, length_, sampling_, answer_, &score);
    const auto& stops = sampling_.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end() &&
        answer_.size() >= sampling_.min_tokens) {
      stopped_ = true;
      break;
    }
    answer_.push_back(token);
    if (sampling_.logprobs) scores_.push_back(std::move(score));
  }
  return answer_;
}

}  // namespace weir::engine
