// SPDX-License-Identifier: Apache-2.0
//
// Faults: what goes wrong in a simulated cluster, when and to whom. Plain data drawn from a seed;
// Apply does it to a cluster. One thread. A fault whose target is gone does nothing.
#pragma once

#include <string_view>
#include <vector>

#include "base/stdx/random.h"
#include "replay/sim/sim_cluster.h"

namespace weir::sim {

enum class FaultKind : uint8_t {
  kKillPrefill = 0,
  kKillDecode,
  kKillRouter,
  kFreezePrefill,   // stops for a while, as under SIGSTOP
  kFreezeDecode,
  kPartition,       // two processes do not reach each other, for longer than a link lives
  kClog,            // ... for less: everything arrives late
  kDropLink,
  kSlowTransfer,
  kCorruptTransfer,
  kCutTransfer,     // data path down, control path up
  kVoidStep,
  kPoison,          // the device is lost and the process leaves
  kDrainPrefill,
  kDrainDecode,
  kClientStorm,     // a share of the clients leaves at once
  kPressure,        // a burst of requests
};
inline constexpr int kFaultKinds = 17;

struct Fault {
  Instant at{};
  FaultKind kind = FaultKind::kKillDecode;
  uint32_t seat = 0;
  uint32_t other = 0;
  Duration duration{0};
  uint64_t draw = 0;  // for whatever else the fault chooses
};

std::string_view NameOf(FaultKind kind);

// One to four faults within `span` from the start.
std::vector<Fault> DrawFaults(Random* random, const ClusterConfig& config, Duration span);

// Whoever dies comes back after `fault.duration`.
void Apply(SimCluster* cluster, const Fault& fault);

}  // namespace weir::sim
