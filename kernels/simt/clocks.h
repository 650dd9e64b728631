// SPDX-License-Identifier: Apache-2.0
//
// Who has seen what: vector clocks of one block's threads and of its agents, the asynchronous
// engines that complete copies. An access is ordered before a thread's next step if its clock lies
// at or below what the thread has seen of its actor. A full barrier raises a floor that all share,
// which keeps the common case cheap. Knowledge of other blocks arrives only through atomics.
// Used by the launching thread alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace weir::kernels::simt {

using ClockVector = std::vector<uint32_t>;
// Block number -> clocks of its actors that are known to lie in the past.
using Knowledge = std::map<uint32_t, ClockVector>;

constexpr int kAgentsMax = 64;

inline void RaiseTo(const ClockVector& from, ClockVector* to) {
  if (to->size() < from.size()) to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

inline void RaiseTo(const Knowledge& from, Knowledge* to) {
  for (const auto& [block, clocks] : from) RaiseTo(clocks, &(*to)[block]);
}

class Clocks {
 public:
  void Reset(int threads, uint32_t block) {
    threads_ = threads;
    block_ = block;
    agents_ = 0;
    const auto actors = static_cast<size_t>(threads + kAgentsMax);
    now_.assign(actors, 1);
    floor_.assign(actors, 0);
    seen_.resize(static_cast<size_t>(threads));
    for (ClockVector& row : seen_) row.assign(actors, 0);
    foreign_.clear();
  }

  uint32_t now(int actor) const { return now_[Index(actor)]; }
  uint32_t Tick(int actor) { return ++now_[Index(actor)]; }
  // A new agent, or the last one again when there are too many.
  int AddAgent() { return threads_ + (agents_ < kAgentsMax - 1 ? agents_++ : kAgentsMax - 1); }

  bool Ordered(int actor, uint32_t clock, int thread) const {
    return actor == thread || clock <= floor_[Index(actor)] ||
           clock <= seen_[Index(thread)][Index(actor)];
  }
  bool OrderedForeign(uint32_t block, int actor, uint32_t clock, int thread) const {
    const auto mine = foreign_.find(thread);
    if (mine == foreign_.end()) return false;
    const auto at = mine->second.find(block);
    return at != mine->second.end() && Index(actor) < at->second.size() &&
           clock <= at->second[Index(actor)];
  }

  // Every thread of the block meets.
  void SyncAll();
  // These threads meet.
  void Sync(const std::vector<int>& members);

  // Adds what the thread has done and seen of its own block; later steps of it are not part of it.
  void Release(int thread, ClockVector* into);
  void Acquire(int thread, const ClockVector& from) { RaiseTo(from, &seen_[Index(thread)]); }

  // What lies before the thread's next step.
  void Snapshot(int thread, ClockVector* into) const {
    RaiseTo(seen_[Index(thread)], into);
    RaiseTo(floor_, into);
    (*into)[Index(thread)] = now_[Index(thread)];
  }

  // Likewise, with what it knows of other blocks.
  void Release(int thread, Knowledge* into);
  void Acquire(int thread, const Knowledge& from);

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }
  void SpreadForeign(const std::vector<int>& members);

  int threads_ = 0;
  uint32_t block_ = 0;
  int agents_ = 0;
  ClockVector now_;
  ClockVector floor_;
  std::vector<ClockVector> seen_;
  std::map<int, Knowledge> foreign_;  // thread -> what it knows of other blocks
};

}  // namespace weir::kernels::simt
