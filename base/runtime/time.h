// SPDX-License-Identifier: Apache-2.0
//
// Time as cores see it: an Instant is handed in, never read. The epoch is arbitrary (a steady clock
// in production, zero in simulation); only differences mean something.
#pragma once

#include <chrono>
#include <ratio>

namespace weir {

struct WeirClockTag {
  using rep = int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<WeirClockTag>;
  static constexpr bool is_steady = true;
};

using Duration = std::chrono::nanoseconds;
using Instant = std::chrono::time_point<WeirClockTag, Duration>;
inline constexpr Instant kNever = Instant::max();

constexpr double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
constexpr Duration Millis(int64_t count) { return std::chrono::milliseconds(count); }

}  // namespace weir
