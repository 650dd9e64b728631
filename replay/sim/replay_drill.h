// SPDX-License-Identifier: Apache-2.0
//
// ReplayDrill: rows that rebuild windows must leave complete blocks alone. No core plans such rows
// until prefixes are reused, so the swarm drills the model with them: it computes a prompt, loses the
// state page, replays so few rows that they come out approximate, and compares every block row below
// the write floor with what stood there. A pure function of the seed; empty when all holds.
#pragma once

#include <string>

#include "engine/model/hash_rules.h"

namespace weir::sim {

std::string ReplayDrill(const engine::HashConfig& config, uint64_t seed);

}  // namespace weir::sim
