// SPDX-License-Identifier: Apache-2.0
//
// What to say of callbacks that held a loop up: nothing of short ones, and of long ones at most one
// line in a while, with how many there were and the longest. A loop that is late tells a lot, and
// the telling makes it later. A plain value for the loop's thread; it reads no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/runtime/time.h"

namespace weir {

class StallDigest {
 public:
  struct Options {
    Duration worth = Millis(100);  // shorter ones are only counted by the loop
    Duration every = std::chrono::seconds(10);
  };
  struct Summary {
    uint64_t count = 0;  // since the summary before
    Duration max{0};
  };

  StallDigest() = default;
  explicit StallDigest(Options options) : options_(options) {}

  // A summary when it is time for one.
  std::optional<Summary> Add(Instant now, Duration took) {
    if (took < options_.worth) return std::nullopt;
    ++pending_.count;
    pending_.max = std::max(pending_.max, took);
    if (now < next_) return std::nullopt;
    next_ = now + options_.every;
    return std::exchange(pending_, Summary{});
  }

 private:
  Options options_;
  Instant next_{};
  Summary pending_;
};

}  // namespace weir
