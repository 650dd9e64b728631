// SPDX-License-Identifier: Apache-2.0
//
// Gate: refuse new work, wait for the old. Work enters with a Pass and leaves when the pass dies;
// after Close nobody enters, and once the last pass is gone the gate is empty for good. Any thread.
// Passes share the gate's state, so they may outlive the Gate object.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/runtime/task.h"
#include "base/runtime/time.h"

namespace weir {

class Gate {
  struct State {
    std::mutex mu;
    std::condition_variable empty;
    size_t inside = 0;     // guarded by mu
    bool closed = false;   // guarded by mu
    Task on_empty;         // guarded by mu; moved out to run without the lock
  };

 public:
  class Pass {
   public:
    Pass(Pass&& other) noexcept : state_(std::move(other.state_)) {}
    Pass& operator=(Pass&& other) noexcept {
      std::swap(state_, other.state_);
      return *this;
    }
    ~Pass() {
      if (state_) Leave(*state_);
    }

   private:
    friend class Gate;
    explicit Pass(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  Gate() : state_(std::make_shared<State>()) {}

  // Nothing when the gate is closed.
  [[nodiscard]] std::optional<Pass> Enter() {
    std::lock_guard lock(state_->mu);
    if (state_->closed) return std::nullopt;
    ++state_->inside;
    return Pass(state_);
  }

  // Refuses new entries. `on_empty`, where given, runs once when nobody is inside: here and now, or
  // on the thread of the last pass. Later calls change nothing.
  void Close(Task on_empty = nullptr) {
    {
      std::lock_guard lock(state_->mu);
      if (state_->closed) return;
      state_->closed = true;
      if (state_->inside > 0) {
        state_->on_empty = std::move(on_empty);
        return;
      }
    }
    state_->empty.notify_all();
    if (on_empty) on_empty();
  }

  // True when the gate is closed and empty within `timeout`.
  bool WaitEmpty(Duration timeout) {
    std::unique_lock lock(state_->mu);
    return state_->empty.wait_for(lock, timeout,
                                  [this] { return state_->closed && state_->inside == 0; });
  }

  bool closed() const {
    std::lock_guard lock(state_->mu);
    return state_->closed;
  }
  size_t inside() const {
    std::lock_guard lock(state_->mu);
    return state_->inside;
  }

 private:
  static void Leave(State& state) {
    Task on_empty;
    {
      std::lock_guard lock(state.mu);
      if (--state.inside > 0 || !state.closed) return;
      on_empty = std::move(state.on_empty);
    }
    state.empty.notify_all();
    if (on_empty) on_empty();
  }

  std::shared_ptr<State> state_;
};

}  // namespace weir
