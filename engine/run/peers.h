// SPDX-License-Identifier: Apache-2.0
//
// Peers: which instances an engine has a stream to. LoadReporter: when the routers among them hear
// how busy it is. Both are plain values of one core; they decide, and answer with messages to send.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "base/runtime/time.h"
#include "engine/run/engine_io.h"

namespace weir::engine {

class Peers {
 public:
  // Ignored beyond kPeersMax.
  void Up(const PeerUp& peer);
  void Down(InstanceId instance);

  const PeerUp* Find(InstanceId instance) const;
  bool IsUp(InstanceId instance) const { return Find(instance) != nullptr; }
  std::span<const InstanceId> routers() const { return routers_; }

 private:
  std::map<InstanceId, PeerUp> peers_;
  std::vector<InstanceId> routers_;
};

// What LoadReport says.
struct LoadFigures {
  uint32_t slots_total = 0;
  uint32_t slots_used = 0;
  uint32_t pages_total = 0;
  uint32_t pages_used = 0;
  uint32_t queued = 0;
  uint64_t queued_tokens = 0;
  bool draining = false;

  bool operator==(const LoadFigures&) const = default;
};

class LoadReporter {
 public:
  // Call at the end of every event. Sends to all routers when something changed and the last report
  // is kLoadReportGap old, and at least every kLoadReportPeriod.
  void Consider(Instant now, const LoadFigures& figures, const EngineState& counters,
                std::span<const InstanceId> routers, EngineActions* out);
  // A router appeared: it hears at once.
  void Hasten() { hasten_ = true; }
  Instant NextDeadline() const { return due_; }

 private:
  LoadFigures last_;
  Instant sent_{};
  Instant due_ = kNever;
  bool hasten_ = false;
};

}  // namespace weir::engine
