// SPDX-License-Identifier: Apache-2.0
//
// Arbiter: who computes next, a step that somebody waits for token by token (decode) or a slice of
// work whose end alone matters (prefill). A step that waits goes first, to its end; but a slice that
// waited for the step before it has kSliceMost before the next. So a step waits for one slice at
// most, and steps that follow each other without a pause leave a slice between them.
//
// A core: it is told what waits and what things cost, and knows no clock, queue or thread. Owned by
// the leader of the pool; cannot fail.
#pragma once

#include <cstdint>

namespace weir::kernels::cpu {

class Arbiter {
 public:
  enum class Grant : uint8_t { kNothing = 0, kStep = 1, kSlice = 2 };

  static constexpr uint64_t kSliceMost = 20'000'000;  // nanoseconds

  // What to run, given which kinds wait.
  Grant Next(bool step_waits, bool slice_waits) {
    if (in_step_ && !step_waits) {
      in_step_ = false;
      sliced_ = slice_waits ? 0 : kSliceMost;
    }
    if (step_waits && (in_step_ || !slice_waits || SliceEnds())) {
      in_step_ = true;
      return Grant::kStep;
    }
    return slice_waits ? Grant::kSlice : Grant::kNothing;
  }

  // Slices have had so much more.
  void Sliced(uint64_t nanoseconds) { sliced_ += nanoseconds; }
  bool in_step() const { return in_step_; }
  // Whether the slice in hand gives way to a step that waits.
  bool SliceEnds() const { return sliced_ >= kSliceMost; }

 private:
  bool in_step_ = false;
  uint64_t sliced_ = kSliceMost;  // since the last step, or kSliceMost where nothing is owed
};

}  // namespace weir::kernels::cpu
