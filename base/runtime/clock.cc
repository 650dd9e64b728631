// SPDX-License-Identifier: Apache-2.0
#include "base/runtime/clock.h"

namespace weir {

Instant Now() {
  const auto since_epoch = std::chrono::steady_clock::now().time_since_epoch();
  return Instant(std::chrono::duration_cast<Duration>(since_epoch));
}

int64_t WallMicros() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

}  // namespace weir
