// SPDX-License-Identifier: Apache-2.0
//
// SimClock: simulated time and everything that is yet to happen. One thread, no real clock. Events
// of one instant run in the order they were added, so that two runs of one seed are the same run.
// An event may add events; none is ever cancelled, so an event whose reason is gone must see so.
#pragma once

#include <cstdint>
#include <vector>

#include "base/runtime/task.h"
#include "base/runtime/time.h"

namespace weir::sim {

class SimClock {
 public:
  Instant now() const { return now_; }
  uint64_t events() const { return events_; }
  bool empty() const { return heap_.empty(); }
  // kNever when nothing is left.
  Instant next() const { return heap_.empty() ? kNever : heap_.front().when; }

  // `when` in the past means now.
  void At(Instant when, Task task);
  void After(Duration delay, Task task) { At(now_ + delay, std::move(task)); }

  // Moves time to the next event and runs it. False when there is none.
  bool RunNext();

 private:
  struct Entry {
    Instant when;
    uint64_t order;
    uint32_t place;  // in tasks_
    bool operator<(const Entry& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  Instant now_{};
  uint64_t events_ = 0;
  uint64_t added_ = 0;
  std::vector<Entry> heap_;
  std::vector<Task> tasks_;
  std::vector<uint32_t> free_;
};

}  // namespace weir::sim
