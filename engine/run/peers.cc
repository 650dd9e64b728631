// SPDX-License-Identifier: Apache-2.0
#include "engine/run/peers.h"

#include <algorithm>

#include "base/stdx/check.h"
#include "engine/limits.h"
#include "engine/run/wire.h"

namespace weir::engine {

void Peers::Up(const PeerUp& peer) {
  if (peers_.size() >= kPeersMax && !peers_.contains(peer.instance)) {
    WEIR_REACHED("engine: too many peers");
    return;
  }
  Down(peer.instance);
  peers_.emplace(peer.instance, peer);
  if (peer.role == Role::kRouter) routers_.push_back(peer.instance);
}

void Peers::Down(InstanceId instance) {
  peers_.erase(instance);
  std::erase(routers_, instance);
}

const PeerUp* Peers::Find(InstanceId instance) const {
  const auto found = peers_.find(instance);
  return found == peers_.end() ? nullptr : &found->second;
}

void LoadReporter::Consider(Instant now, const LoadFigures& figures, const EngineState& counters,
                            std::span<const InstanceId> routers, EngineActions* out) {
  if (routers.empty()) {
    due_ = kNever;
    return;
  }
  due_ = sent_ + (figures == last_ ? kLoadReportPeriod : kLoadReportGap);
  if (now < due_ && !hasten_) return;
  hasten_ = false;
  for (const InstanceId router : routers) {
    pb::LoadReport& report = *SendTo(router, out).mutable_load();
    report.set_slots_total(figures.slots_total);
    report.set_slots_used(figures.slots_used);
    report.set_pages_total(figures.pages_total);
    report.set_pages_used(figures.pages_used);
    report.set_queued(figures.queued);
    report.set_queued_tokens(figures.queued_tokens);
    report.set_draining(figures.draining);
    report.set_steps(counters.steps);
    report.set_rows_computed(counters.rows_computed);
  }
  last_ = figures;
  sent_ = now;
  due_ = now + kLoadReportPeriod;
}

}  // namespace weir::engine
