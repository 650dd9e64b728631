// SPDX-License-Identifier: Apache-2.0
//
// TokenJournal: the prompt and every id that was accepted, which is all that a new attempt needs.
// Each position is accepted once and only from the current attempt, so that a client sees each token
// exactly once whatever happens to engines. A pure value owned by its request; nothing blocks, and a
// row that does not fit is answered, never stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/stdx/ids.h"

namespace weir::router {

class TokenJournal {
 public:
  enum class Verdict : uint8_t {
    kTaken,
    kStale,  // of another attempt, or all its positions are already there
    kGap,    // positions before it never came
  };
  struct Taken {
    Verdict verdict;
    uint32_t first = 0;  // answer index of the first id that is new
  };

  explicit TokenJournal(std::vector<TokenId> prompt);

  // Before the first attempt: how long the answer may be, and where decoder layers start, which is
  // the same for all attempts (decisions, ruling 5).
  void Bound(uint32_t new_tokens_max, uint32_t tail_start);

  // From here on only rows of this attempt are taken.
  void BeginAttempt(Attempt attempt);

  // Takes what is new of `ids`, whose first stands at `position`, counted over prompt and answer.
  // Ids beyond new_tokens_max are dropped.
  Taken Accept(Attempt attempt, Position position, std::span<const TokenId> ids);

  std::span<const TokenId> ids() const { return ids_; }
  std::span<const TokenId> answer() const { return std::span(ids_).subspan(prompt_tokens_); }
  uint32_t prompt_tokens() const { return prompt_tokens_; }
  uint32_t answer_tokens() const { return static_cast<uint32_t>(ids_.size()) - prompt_tokens_; }
  uint32_t new_tokens_max() const { return new_tokens_max_; }
  uint32_t tokens_left() const { return new_tokens_max_ - answer_tokens(); }
  bool full() const { return answer_tokens() >= new_tokens_max_; }
  // Where the decoder layers run from in the current attempt.
  uint32_t tail_start() const { return tail_start_; }
  Attempt attempt() const { return attempt_; }

 private:
  std::vector<TokenId> ids_;  // prompt, then answer
  uint32_t prompt_tokens_ = 0;
  uint32_t new_tokens_max_ = 0;
  uint32_t tail_start_ = 0;
  Attempt attempt_{0};
  bool doubled_ = false;  // the planted bug struck already
};

}  // namespace weir::router
