// SPDX-License-Identifier: Apache-2.0
//
// The clocks of the machine, for shells only: a core gets its Instant as an argument. Both are
// thread-safe, never block and cannot fail.
#pragma once

#include <cstdint>

#include "base/runtime/time.h"

namespace weir {

// Steady; the epoch is the machine's start.
Instant Now();

// Microseconds since 1970 by the wall clock; may jump. For logs and spans, not for deadlines.
int64_t WallMicros();

}  // namespace weir
