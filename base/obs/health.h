// SPDX-License-Identifier: Apache-2.0
//
// Whether a process is fit for work, measured rather than claimed. Each loop or step thread owns a
// Progress and reports its turns and its pending work; readiness fails when one has work and has not
// advanced for longer than its bound, when a check says no, and at once while draining. Progress
// methods are for any thread and cost an atomic store; the rest is for any thread under a leaf lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/runtime/loop.h"
#include "base/runtime/time.h"
#include "base/stdx/status.h"

namespace weir {

class Progress {
 public:
  // A turn was completed.
  void Advance(Instant now) { last_ns_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  // How much work waits; the clock of the stall runs from when it stopped being none.
  void SetPending(Instant now, size_t pending) {
    if (pending > 0 && pending_.load(std::memory_order_relaxed) == 0) Advance(now);
    pending_.store(pending, std::memory_order_relaxed);
  }
  // Since when work waits without an advance; zero when there is none.
  Duration StalledFor(Instant now) const {
    if (pending_.load(std::memory_order_relaxed) == 0) return Duration::zero();
    const Duration stalled = now.time_since_epoch() - Duration(last_ns_.load(std::memory_order_relaxed));
    return stalled < Duration::zero() ? Duration::zero() : stalled;
  }

 private:
  std::atomic<int64_t> last_ns_{0};
  std::atomic<size_t> pending_{0};
};

class Health {
 public:
  // The progress lives as long as this object. `bound` is how long it may stand still with work.
  Progress& AddProgress(std::string name, Duration bound);
  // Watches a loop by its own beat. The loop must outlive this object or be dropped with it.
  void AddLoop(const Loop* loop, Duration bound);
  // An extra condition of readiness ("a decode process is connected"); thread-safe and quick.
  void AddCheck(std::string name, std::function<absl::Status()> check);

  // From now on not ready, whatever else.
  void SetDraining() { draining_.store(true); }
  bool draining() const { return draining_.load(); }
  // Not ready until the service has started.
  void SetStarted() { started_.store(true); }

  // OK, or kNoCapacity with what is wrong.
  absl::Status Ready(Instant now) const;
  // OK unless something has stood still for ten times its bound: then a restart is due.
  absl::Status Live(Instant now) const;

 private:
  struct Watched {
    std::string name;
    Duration bound;
    std::unique_ptr<Progress> progress;
    const Loop* loop = nullptr;  // instead of progress
  };
  absl::Status Standing(Instant now, int patience) const;

  std::atomic<bool> draining_{false};
  std::atomic<bool> started_{false};
  mutable std::mutex mu_;
  std::vector<Watched> watched_;                                                    // guarded by mu_
  std::vector<std::pair<std::string, std::function<absl::Status()>>> checks_;  // guarded by mu_
};

}  // namespace weir
