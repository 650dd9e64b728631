// SPDX-License-Identifier: Apache-2.0
//
// StepSampler: the end of a pass, the same for every family: logits to tokens on the device, then
// what was chosen into a StepResult. Owned by one model and used on its step thread; its buffers
// come from the model's arena, whose status tells whether there was memory. Nothing blocks.
#pragma once

#include <vector>

#include "engine/model/device_arena.h"
#include "engine/model/step_inputs.h"
#include "engine/sched/step_plan.h"
#include "kernels/op/ops.h"

namespace weir::engine {

class StepSampler {
 public:
  StepSampler(const kernels::Ops& ops, int samples_max, int vocab, DeviceArena* arena);

  // F32 [samples_max, vocab]: the model puts the pass's logits into the first rows.
  const kernels::Tensor& logits() const { return logits_; }
  // Samples and checks drafts; the results are on their way to the host.
  void Choose(kernels::Stream& stream, const StepInputs& inputs);
  // After the stream's work is done: appends the pass's answers.
  void Report(const StepInputs& inputs, StepResult* result) const;

 private:
  const kernels::Ops& ops_;
  const int vocab_;
  const kernels::Tensor logits_, adjusted_, order_, counts_, sampled_, accepted_;
  std::vector<kernels::SampleOut> sampled_host_;
  std::vector<int32_t> accepted_host_;
};

}  // namespace weir::engine
