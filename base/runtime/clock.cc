// SPDX-License-Identifier: Apache-2.0
#include "base/runtime/clock.h"

#include <thread>

namespace weir {

Instant Now() {
  const auto since_epoch = std::chrono::steady_clock::now().time_since_epoch();
  return Instant(std::chrono::duration_cast<Duration>(since_epoch));
}

int64_t WallMicros() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

void WaitUntil(Instant when) {
  const Duration left = when - Now();
  if (left > Duration::zero()) std::this_thread::sleep_for(left);
}

}  // namespace weir
