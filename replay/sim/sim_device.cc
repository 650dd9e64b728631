// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/sim_device.h"

#include "base/stdx/check.h"

namespace weir::sim {

using engine::StepHealth;

void SimDevice::Launch(const engine::StepPlan& plan) {
  WEIR_CHECK(plan_ == nullptr);  // at most one step is outstanding
  WEIR_CHECK(!plan.rows.empty());
  plan_ = &plan;
  uint64_t rows = 0;
  for (const engine::StepRow& row : plan.rows) rows += row.count;
  rows_ += rows;
  if (!times_.late) model_->Launch(plan);
  double nanos = static_cast<double>((times_.step + times_.row * static_cast<int64_t>(rows)).count());
  nanos *= 1 + times_.jitter * random_.Unit();
  clock_.After(Duration(static_cast<int64_t>(nanos)), [this, alive = alive_] {
    if (*alive) Finish();
  });
}

void SimDevice::Finish() {
  const engine::StepPlan& plan = *plan_;
  if (times_.late) model_->Launch(plan);
  WEIR_CHECK(model_->Collect(plan.step, /*wait=*/true, &result_));
  const bool is_void = void_next_ || (times_.void_chance > 0 && random_.Chance(times_.void_chance));
  void_next_ = false;
  if (poisoned_ || is_void) {
    const StepId step = plan.step;
    result_.Clear();
    result_.step = step;
    result_.health = poisoned_ ? StepHealth::kPoisoned : StepHealth::kVoid;
  }
  plan_ = nullptr;
  done_(result_);
}

}  // namespace weir::sim
