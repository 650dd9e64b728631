// SPDX-License-Identifier: Apache-2.0
//
// StandInModel: what models without weights share. A step is computed on the thread that calls
// Launch, after the plan's page copies; Collect hands the result out once the pretended time of the
// step is up. Owned by the step thread; it borrows the pages, as every Model does, and never fails.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/stdx/check.h"
#include "engine/model/model.h"
#include "engine/model/step_delay.h"

namespace weir::engine {

class StandInModel : public Model {
 public:
  void Launch(const StepPlan& plan) final {
    delay_.Start();
    result_.Clear();
    result_.step = plan.step;
    for (const PageCopy& copy : plan.copies) {
      if (copy.kind == PageCopy::Kind::kState) {
        std::memcpy(memory_.State(copy.to), memory_.State(copy.from), memory_.state_bytes);
        continue;
      }
      std::memcpy(memory_.Page(copy.part, copy.to), memory_.Page(copy.part, copy.from),
                  memory_.page_bytes[static_cast<int>(copy.part)]);
    }
    Run(plan);
  }

  bool Collect(StepId id, bool wait, StepResult* out) final {
    WEIR_CHECK(id == result_.step);
    if (!delay_.Over(wait)) return false;
    out->Clear();
    std::swap(*out, result_);
    result_.step = StepId{};
    return true;
  }

 protected:
  StandInModel(const KvMemory& memory, uint32_t step_delay_us)
      : memory_(memory), delay_(step_delay_us) {}

  // Computes every row group of the plan into result_, which is clear but for its step.
  virtual void Run(const StepPlan& plan) = 0;

  const KvMemory memory_;
  StepResult result_;

 private:
  StepDelay delay_;
};

}  // namespace weir::engine
