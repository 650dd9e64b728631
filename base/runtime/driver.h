// SPDX-License-Identifier: Apache-2.0
//
// The real-time shell around a core: events in through a bounded inbox, actions out through one
// callback, a Tick when the core's deadline is due. `Driver` runs where its owner calls it (an
// engine's step thread); `LoopDriver` runs the same turns on a Loop. The core belongs to that one
// thread; TryPush is for any thread and says no when the inbox is full. Actions are performed right
// after the event that caused them, in order, so that a real run and a simulated one interleave
// alike.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/runtime/clock.h"
#include "base/runtime/core.h"
#include "base/runtime/loop.h"
#include "base/stdx/bounded_queue.h"

namespace weir {

template <Core C>
class Driver {
 public:
  using Event = typename C::Event;
  using Actions = typename C::Actions;

  struct Options {
    size_t inbox_capacity = 4096;
    size_t events_per_turn = 256;        // bound on one turn, so that steps and timers get theirs
    std::function<Event()> make_tick;    // the event that means "your deadline passed"
    std::function<void(Instant, Actions*)> perform;  // does what *actions says; cleared afterwards
  };

  Driver(C* core, Options options)
      : core_(core), options_(std::move(options)), inbox_(options_.inbox_capacity) {}

  [[nodiscard]] bool TryPush(Event&& event) { return inbox_.TryPush(std::move(event)); }
  void Close() { inbox_.Close(); }
  bool closed() const { return inbox_.closed(); }
  size_t queued() const { return inbox_.size(); }

  // Handles what is queued, at most events_per_turn, and a due deadline. Returns the number of
  // events handled. Owner's thread; does not wait.
  size_t Turn() {
    batch_.clear();
    inbox_.PopSome(options_.events_per_turn, &batch_);
    return Handle();
  }

  // As Turn, but first waits for an event, the core's deadline or `wait_max`.
  size_t WaitTurn(Duration wait_max) {
    const Instant deadline = core_->NextDeadline();
    Duration wait = wait_max;
    if (deadline != kNever) wait = std::clamp(deadline - Now(), Duration::zero(), wait_max);
    batch_.clear();
    inbox_.WaitSome(options_.events_per_turn, wait, &batch_);
    return Handle();
  }

  // Turns until Close, then handles what was still queued.
  void RunUntilClosed() {
    while (!closed()) WaitTurn(std::chrono::seconds(1));
    while (Turn() > 0) {
    }
  }

  // Hands one event to the core without the inbox. Owner's thread.
  void Deliver(const Event& event) { Step(Now(), event); }

  Instant NextDeadline() const { return core_->NextDeadline(); }

 private:
  size_t Handle() {
    const size_t handled = batch_.size();
    for (const Event& event : batch_) Step(Now(), event);
    batch_.clear();
    const Instant now = Now();
    if (core_->NextDeadline() <= now) Step(now, options_.make_tick());
    return handled;
  }

  void Step(Instant now, const Event& event) {
    core_->On(now, event, &actions_);
    options_.perform(now, &actions_);
    if constexpr (requires { actions_.Clear(); }) {
      actions_.Clear();
    } else {
      actions_.clear();
    }
  }

  C* const core_;
  const Options options_;
  BoundedQueue<Event> inbox_;
  // Owned by the driving thread.
  std::vector<Event> batch_;
  Actions actions_;
};

// Turns of a Driver on `loop`. Create and destroy it on the loop's thread or while the loop does not
// run; after destruction queued wake-ups do nothing.
template <Core C>
class LoopDriver {
 public:
  using Event = typename C::Event;

  LoopDriver(Loop* loop, C* core, typename Driver<C>::Options options)
      : shared_(std::make_shared<Shared>(loop, core, std::move(options))) {}
  ~LoopDriver() {
    shared_->alive = false;
    shared_->loop->Cancel(shared_->timer);
  }
  LoopDriver(const LoopDriver&) = delete;
  LoopDriver& operator=(const LoopDriver&) = delete;

  // Any thread. One wake-up is posted per turn, however many events it brings.
  [[nodiscard]] bool TryPush(Event&& event) {
    if (!shared_->driver.TryPush(std::move(event))) return false;
    Shared::Wake(shared_);
    return true;
  }

  // Hands one event to the core at once. Loop's thread.
  void Deliver(const Event& event) {
    shared_->driver.Deliver(event);
    Shared::Arm(shared_);
  }

  size_t queued() const { return shared_->driver.queued(); }

 private:
  struct Shared {
    Shared(Loop* l, C* core, typename Driver<C>::Options options)
        : loop(l), driver(core, std::move(options)) {}

    static void Wake(const std::shared_ptr<Shared>& self) {
      if (self->woken.exchange(true)) return;
      self->loop->Post("driver turn", [self] {
        // Before the pop, so that a push after it wakes again.
        self->woken.store(false);
        if (!self->alive) return;
        self->driver.Turn();
        if (!self->alive) return;
        if (self->driver.queued() > 0) Wake(self);
        Arm(self);
      });
    }

    // One timer at the core's deadline; re-armed only when the deadline moved.
    static void Arm(const std::shared_ptr<Shared>& self) {
      const Instant deadline = self->driver.NextDeadline();
      if (deadline == self->armed) return;
      self->loop->Cancel(self->timer);
      self->armed = deadline;
      if (deadline == kNever) return;
      self->timer = self->loop->At("driver tick", deadline, [self] {
        self->armed = kNever;
        if (!self->alive) return;
        self->driver.Turn();
        if (self->alive) Arm(self);
      });
    }

    Loop* const loop;
    Driver<C> driver;
    std::atomic<bool> woken{false};
    // Owned by the loop's thread.
    bool alive = true;
    Loop::TimerId timer = 0;
    Instant armed = kNever;
  };

  std::shared_ptr<Shared> shared_;
};

}  // namespace weir
