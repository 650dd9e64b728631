// SPDX-License-Identifier: Apache-2.0
//
// How many files and sockets this process may have open. Any thread, never blocks; it changes the
// process's own limit and nothing else.
#pragma once

#include <cstdint>

namespace weir {

// Raises the soft limit as far as it goes (a million at most: some libraries have tables of that
// size) and returns what holds then. Without the right to raise it, what held before.
uint64_t RaiseDescriptorLimit();

// How many connections to allow of the `wanted`, so that of `descriptors` enough are left for links,
// files and what libraries open. At least one.
uint32_t ConnectionsWithin(uint64_t descriptors, uint32_t wanted);

}  // namespace weir
