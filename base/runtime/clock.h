// SPDX-License-Identifier: Apache-2.0
//
// The clocks of the machine, for shells only: a core gets its Instant as an argument. All are
// thread-safe and cannot fail; only WaitUntil blocks.
#pragma once

#include <cstdint>

#include "base/runtime/time.h"

namespace weir {

// Steady; the epoch is the machine's start.
Instant Now();

// Microseconds since 1970 by the wall clock; may jump. For logs and spans, not for deadlines.
int64_t WallMicros();

// Blocks the calling thread until `when`. Only for a device that pretends to be busy, inside the one
// wait that a step loop has.
void WaitUntil(Instant when);

}  // namespace weir
