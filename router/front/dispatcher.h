// SPDX-License-Identifier: Apache-2.0
//
// Dispatcher: the router's core with its hands. Events go in one at a time, what they cause is done
// before the next; what the front says meanwhile waits its turn, since a core is not entered twice.
// One loop's thread, nothing blocks. It owns the core and borrows the front.
#pragma once

#include <deque>
#include <functional>

#include "router/front/http_front.h"
#include "router/session/router_core.h"

namespace weir::router {

class Dispatcher final : public FrontBackend {
 public:
  // Sends a message to an engine; a link that cannot take it is the callee's to end.
  using Sender = std::function<void(InstanceId to, const pb::Envelope& message)>;

  // `settled` runs after each event from outside and all it caused: core().NextDeadline() may have
  // moved. May be empty.
  Dispatcher(RouterCore::Config config, Sender send, std::function<void()> settled = nullptr);

  // Before the first event.
  void SetFront(HttpFront* front) { front_ = front; }

  // For events that hold references: not from within a call of this object.
  void Feed(const RouterEvent& event);
  // For events that hold none; from anywhere on the thread.
  void Enqueue(RouterEvent event);
  // After the deadline passed.
  void TickIfDue(Instant now);
  Instant NextDeadline() const { return core_.NextDeadline(); }

  const RouterCore& core() const { return core_; }
  RouterCore& core() { return core_; }

  void Ask(Submit submit) override { Enqueue(std::move(submit)); }
  void Leave(Withdraw withdraw) override { Enqueue(withdraw); }
  const FleetCore& fleet() const override { return core_.fleet(); }

 private:
  void Step(const RouterEvent& event);
  void RunQueue();
  void Settle();

  RouterCore core_;
  const Sender send_;
  const std::function<void()> settled_;
  HttpFront* front_ = nullptr;
  RouterActions actions_;
  std::deque<RouterEvent> queue_;
  bool running_ = false;
};

}  // namespace weir::router
