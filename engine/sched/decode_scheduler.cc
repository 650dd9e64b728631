// SPDX-License-Identifier: Apache-2.0
#include "engine/sched/decode_scheduler.h"

#include <algorithm>

#include "base/stdx/check.h"

namespace weir::engine {

DecodeScheduler::DecodeScheduler(uint32_t slots, uint32_t step_rows_max)
    : step_rows_max_(step_rows_max), next_(slots, -1), previous_(slots, -1), wanted_(slots, 0) {
  WEIR_CHECK(slots > 0 && step_rows_max > 0);
}

void DecodeScheduler::Add(SlotId slot) {
  previous_[Index(slot)] = tail_;
  next_[Index(slot)] = -1;
  if (tail_ >= 0) {
    next_[static_cast<size_t>(tail_)] = slot.value;
  } else {
    head_ = slot.value;
  }
  tail_ = slot.value;
  wanted_[Index(slot)] = 1;
  ++size_;
}

void DecodeScheduler::Remove(SlotId slot) {
  const int32_t next = next_[Index(slot)];
  const int32_t previous = previous_[Index(slot)];
  (previous >= 0 ? next_[static_cast<size_t>(previous)] : head_) = next;
  (next >= 0 ? previous_[static_cast<size_t>(next)] : tail_) = previous;
  if (resume_at_ == slot.value) resume_at_ = next;
  --size_;
}

void DecodeScheduler::Assign(std::vector<Turn>* out) {
  out->clear();
  if (size_ == 0) return;
  const int32_t start = resume_at_ >= 0 ? resume_at_ : head_;
  resume_at_ = -1;
  uint32_t left = step_rows_max_;
  int32_t at = start;
  do {
    if (wanted_[static_cast<size_t>(at)] > 0) {
      if (left == 0) {
        WEIR_REACHED("decode: more sequences than rows in a step");
        resume_at_ = at;
        break;
      }
      out->push_back({.slot = SlotId(at), .rows = 1});
      --left;
    }
    at = next_[static_cast<size_t>(at)];
    if (at < 0) at = head_;
  } while (at != start);
  for (Turn& turn : *out) {
    if (left == 0) break;
    const uint32_t more = std::min<uint32_t>(wanted_[Index(turn.slot)] - 1u, left);
    turn.rows = static_cast<uint16_t>(1 + more);
    left -= more;
  }
}

}  // namespace weir::engine
