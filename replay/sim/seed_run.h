// SPDX-License-Identifier: Apache-2.0
//
// SeedRun: one seed of the swarm, from the drawn configuration, load and faults to the verdict. A
// pure function of the seed and the build; one thread, no I/O. RunSimulate is `weir simulate`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/sim/faults.h"

namespace weir::sim {

struct SeedReport {
  uint64_t seed = 0;
  std::string violation;  // empty: everything held
  uint64_t events = 0;
  uint32_t requests = 0;
  uint32_t succeeded = 0;
  uint32_t failed = 0;
  uint32_t withdrawn = 0;
  uint64_t tokens = 0;
  Duration simulated{0};
  std::vector<std::string> faults;
};

ClusterConfig DrawConfig(uint64_t seed);
// With `trace` every message but load reports goes to stdout, and what is done to the cluster.
SeedReport RunSeed(uint64_t seed, bool trace = false);

// Arguments after `simulate`: --seed N (default 1), --count N, --trace 1. Returns the process's
// exit code.
int RunSimulate(const std::vector<std::string>& args);

}  // namespace weir::sim
