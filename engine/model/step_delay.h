// SPDX-License-Identifier: Apache-2.0
//
// StepDelay: how stand-in models pretend that a step takes time. Owned by the step thread; Over with
// wait blocks, which is the one wait a step loop has. Without a delay the clock is never read.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/runtime/clock.h"

namespace weir::engine {

class StepDelay {
 public:
  explicit StepDelay(uint32_t micros) : delay_(std::chrono::microseconds(micros)) {}

  void Start() {
    if (delay_ > Duration::zero()) end_ = Now() + delay_;
  }
  // True once the step's time is up.
  bool Over(bool wait) const {
    if (delay_ == Duration::zero()) return true;
    if (wait) {
      WaitUntil(end_);
      return true;
    }
    return Now() >= end_;
  }

 private:
  const Duration delay_;
  Instant end_{};
};

}  // namespace weir::engine
