// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/sim_clock.h"

#include <algorithm>
#include <utility>

namespace weir::sim {

void SimClock::At(Instant when, Task task) {
  uint32_t place;
  if (free_.empty()) {
    place = static_cast<uint32_t>(tasks_.size());
    tasks_.emplace_back();
  } else {
    place = free_.back();
    free_.pop_back();
  }
  tasks_[place] = std::move(task);
  heap_.push_back({std::max(when, now_), ++added_, place});
  std::push_heap(heap_.begin(), heap_.end());
}

bool SimClock::RunNext() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end());
  const Entry entry = heap_.back();
  heap_.pop_back();
  now_ = entry.when;
  ++events_;
  Task task = std::move(tasks_[entry.place]);
  tasks_[entry.place] = {};
  free_.push_back(entry.place);
  task();
  return true;
}

}  // namespace weir::sim
