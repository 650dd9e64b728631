// SPDX-License-Identifier: Apache-2.0
//
// BoundedQueue<T>: the only way to hand values between threads. Any thread may push, one thread
// pops. TryPush answers no when full, and nothing ever waits for room; the consumer may wait for an
// item with a deadline. One leaf mutex guards the ring; no lock is taken while holding it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/stdx/check.h"

namespace weir {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { WEIR_CHECK(capacity > 0); }

  // False when full or closed; the value is then untouched.
  [[nodiscard]] bool TryPush(T&& value) {
    {
      std::lock_guard lock(mu_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  // Moves at most `max` items to the end of *out; returns how many. Never waits.
  size_t PopSome(size_t max, std::vector<T>* out) {
    std::lock_guard lock(mu_);
    return TakeLocked(max, out);
  }

  // As PopSome, but waits up to `timeout` for the first item. Returns 0 on time-out or close.
  template <class Rep, class Period>
  size_t WaitSome(size_t max, std::chrono::duration<Rep, Period> timeout, std::vector<T>* out) {
    std::unique_lock lock(mu_);
    ready_.wait_for(lock, timeout, [this] { return closed_ || !items_.empty(); });
    return TakeLocked(max, out);
  }

  // After Close pushes fail; what is queued can still be popped.
  void Close() {
    {
      std::lock_guard lock(mu_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mu_);
    return closed_;
  }
  size_t size() const {
    std::lock_guard lock(mu_);
    return items_.size();
  }

 private:
  size_t TakeLocked(size_t max, std::vector<T>* out) {
    size_t taken = 0;
    while (taken < max && !items_.empty()) {
      out->push_back(std::move(items_.front()));
      items_.pop_front();
      ++taken;
    }
    return taken;
  }

  const size_t capacity_;
  mutable std::mutex mu_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace weir
