// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/clocks.h"

#include <numeric>

namespace weir::kernels::simt {

void Clocks::SyncAll() {
  for (int t = 0; t < threads_; ++t) floor_[Index(t)] = now_[Index(t)]++;
  for (int agent = threads_; agent < threads_ + agents_; ++agent) {
    for (const ClockVector& row : seen_) {
      floor_[Index(agent)] = std::max(floor_[Index(agent)], row[Index(agent)]);
    }
  }
  if (foreign_.empty()) return;
  std::vector<int> all(Index(threads_));
  std::iota(all.begin(), all.end(), 0);
  SpreadForeign(all);
}

void Clocks::Sync(const std::vector<int>& members) {
  ClockVector joined(now_.size(), 0);
  for (const int t : members) {
    seen_[Index(t)][Index(t)] = now_[Index(t)];
    RaiseTo(seen_[Index(t)], &joined);
  }
  for (const int t : members) {
    seen_[Index(t)] = joined;
    ++now_[Index(t)];
  }
  if (!foreign_.empty()) SpreadForeign(members);
}

void Clocks::SpreadForeign(const std::vector<int>& members) {
  Knowledge joined;
  for (const int t : members) {
    const auto at = foreign_.find(t);
    if (at != foreign_.end()) RaiseTo(at->second, &joined);
  }
  if (joined.empty()) return;
  for (const int t : members) foreign_[t] = joined;
}

void Clocks::Release(int thread, ClockVector* into) {
  ClockVector& mine = seen_[Index(thread)];
  mine[Index(thread)] = now_[Index(thread)]++;
  RaiseTo(mine, into);
  RaiseTo(floor_, into);
}

void Clocks::Release(int thread, Knowledge* into) {
  Release(thread, &(*into)[block_]);
  const auto at = foreign_.find(thread);
  if (at != foreign_.end()) RaiseTo(at->second, into);
}

void Clocks::Acquire(int thread, const Knowledge& from) {
  for (const auto& [block, clocks] : from) {
    if (block == block_) {
      Acquire(thread, clocks);
    } else {
      RaiseTo(clocks, &foreign_[thread][block]);
    }
  }
}

}  // namespace weir::kernels::simt
