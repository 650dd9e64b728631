// SPDX-License-Identifier: Apache-2.0
#include "router/session/token_journal.h"

#include <algorithm>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"

namespace weir::router {
namespace {

// Room taken at once for the answer; longer ones grow by doubling.
constexpr uint32_t kAnswerReserve = 1024;

}  // namespace

TokenJournal::TokenJournal(std::vector<TokenId> prompt)
    : ids_(std::move(prompt)), prompt_tokens_(static_cast<uint32_t>(ids_.size())) {}

void TokenJournal::Bound(uint32_t new_tokens_max, uint32_t tail_start) {
  WEIR_CHECK(attempt_.value == 0 && answer_tokens() == 0);
  new_tokens_max_ = new_tokens_max;
  tail_start_ = tail_start;
  ids_.reserve(ids_.size() + std::min(new_tokens_max, kAnswerReserve));
}

void TokenJournal::BeginAttempt(Attempt attempt) {
  WEIR_CHECK(attempt > attempt_);
  attempt_ = attempt;
  if (IsPlanted(Planted::kTailStartMoves) && attempt.value > 1) {
    tail_start_ += answer_tokens();
  }
}

TokenJournal::Taken TokenJournal::Accept(Attempt attempt, Position position,
                                         std::span<const TokenId> ids) {
  const auto next = static_cast<Position>(ids_.size());
  if (attempt != attempt_ && !IsPlanted(Planted::kForgetEpochCheck)) {
    WEIR_REACHED("journal: row of another attempt");
    return {Verdict::kStale};
  }
  if (position > next) {
    WEIR_REACHED("journal: gap");
    return {Verdict::kGap};
  }
  const size_t known = next - position;
  if (known > 0 && known >= ids.size()) {
    WEIR_REACHED("journal: positions already there");
    return {Verdict::kStale};
  }
  if (position < prompt_tokens_) return {Verdict::kStale};
  uint32_t first = next - prompt_tokens_;
  if (IsPlanted(Planted::kDoubleToken) && attempt_.value > 1 && first > 0 && !doubled_) {
    doubled_ = true;
    --first;
  }
  std::span<const TokenId> fresh = ids.subspan(known);
  if (fresh.size() > tokens_left()) {
    WEIR_REACHED("journal: more ids than asked for");
    fresh = fresh.first(tokens_left());
  }
  ids_.insert(ids_.end(), fresh.begin(), fresh.end());
  return {Verdict::kTaken, first};
}

}  // namespace weir::router
