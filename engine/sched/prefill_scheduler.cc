// SPDX-License-Identifier: Apache-2.0
#include "engine/sched/prefill_scheduler.h"

#include <algorithm>

#include "base/stdx/check.h"

namespace weir::engine {
namespace {

constexpr uint32_t kOthersShare = 5;   // others take at most one row in five in the long run
constexpr uint32_t kCreditChunks = 8;  // and this many chunks in a burst

}  // namespace

PrefillScheduler::PrefillScheduler(uint32_t chunk_rows)
    : chunk_rows_(chunk_rows),
      credit_max_(uint64_t{chunk_rows} * kCreditChunks),
      credit_(credit_max_) {
  WEIR_CHECK(chunk_rows > 0);
}

void PrefillScheduler::Assign(std::span<PrefillCandidate> candidates) {
  if (candidates.empty()) return;
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.remaining != b.remaining ? a.remaining < b.remaining : a.arrival < b.arrival;
  });
  PrefillCandidate* oldest = &candidates[0];
  for (PrefillCandidate& c : candidates) {
    c.rows = 0;
    if (c.arrival < oldest->arrival) oldest = &c;
  }
  // Rounded up, so that a tiny chunk still lets others move.
  const uint32_t share = (chunk_rows_ + kOthersShare - 1) / kOthersShare;
  uint32_t for_others = static_cast<uint32_t>(std::min<uint64_t>(chunk_rows_, credit_));
  if (for_others < share) for_others = std::min(share, chunk_rows_ - 1);
  uint32_t left = chunk_rows_;
  for (PrefillCandidate& c : candidates) {
    if (&c == oldest) continue;
    c.rows = std::min({c.remaining, for_others, left});
    for_others -= c.rows;
    left -= c.rows;
  }
  const uint32_t taken = chunk_rows_ - left;
  oldest->rows = std::min(oldest->remaining, left);
  left -= oldest->rows;
  // What the oldest cannot use belongs to nobody's credit.
  for (PrefillCandidate& c : candidates) {
    const uint32_t more = std::min(c.remaining - c.rows, left);
    c.rows += more;
    left -= more;
  }
  credit_ -= std::min<uint64_t>(credit_, taken);
  // One row for others for every four of the oldest.
  credit_ = std::min<uint64_t>(credit_max_, credit_ + oldest->rows / (kOthersShare - 1));
}

}  // namespace weir::engine
