// SPDX-License-Identifier: Apache-2.0
#include "router/front/dispatcher.h"

#include <utility>

#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir::router {

Dispatcher::Dispatcher(RouterCore::Config config, Sender send, std::function<void()> settled)
    : core_(config), send_(std::move(send)), settled_(std::move(settled)) {}

void Dispatcher::Feed(const RouterEvent& event) {
  WEIR_CHECK(!running_);
  running_ = true;
  Step(event);
  RunQueue();
  Settle();
}

void Dispatcher::Enqueue(RouterEvent event) {
  queue_.push_back(std::move(event));
  if (running_) return;
  running_ = true;
  RunQueue();
  Settle();
}

void Dispatcher::Settle() {
  running_ = false;
  if (settled_) settled_();
}

void Dispatcher::TickIfDue(Instant now) {
  if (core_.NextDeadline() <= now) Enqueue(Tick{});
}

void Dispatcher::RunQueue() {
  while (!queue_.empty()) {
    const RouterEvent event = std::move(queue_.front());
    queue_.pop_front();
    Step(event);
  }
}

void Dispatcher::Step(const RouterEvent& event) {
  core_.On(Now(), event, &actions_);
  for (const auto& send : actions_.sends) send_(send.to, send.message);
  for (const auto& delivery : actions_.deliveries) front_->OnDeliver(delivery);
  for (const auto& close : actions_.closes) front_->OnClose(close);
  if (!actions_.spans.empty()) front_->OnSpans(actions_.spans);
  actions_.Clear();
}

}  // namespace weir::router
