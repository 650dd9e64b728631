// SPDX-License-Identifier: Apache-2.0
//
// StepRunner: the Model of every family with weights. It takes a step over its passes: gathers
// rows, runs the family's layers over them, samples, reports, and goes on. A family gives what it
// loaded (TextModel) and its layers (ForwardPass); everything else of a step is here. A runner
// belongs to one engine role and its step thread; the only wait is Collect's. Buffers are taken at
// creation: a process that cannot hold one step's buffers stops before it is ready.
#pragma once

#include <memory>
#include <vector>

#include "engine/ep/ep_comm.h"
#include "engine/model/device_arena.h"
#include "engine/model/kv_stores.h"
#include "engine/model/model.h"
#include "engine/model/step_inputs.h"
#include "engine/model/text_model_options.h"

namespace weir::engine {

// What a pass works with; all of it outlives the pass.
struct PassContext {
  kernels::Backend& backend;
  kernels::Stream& stream;
  const KvStores& kv;
  EpComm& ep;
  DeviceArena& arena;  // for buffers, at creation; its status tells whether there was memory
  const TensorTap& tap;
  int rows_max = 0;
  int samples_max = 0;
};

// A family's layers, one pass of rows at a time. Calls enqueue work and do not block.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;
  // Runs all layers over the pass's rows and puts the logits of the sampled rows into `logits`.
  virtual void Run(const StepInputs& inputs, const kernels::Tensor& logits) = 0;
};

// A checkpoint as its family loaded it; constant, and shared by the models made from it.
struct TextModel {
  virtual ~TextModel() = default;
  virtual std::unique_ptr<ForwardPass> NewPass(const PassContext& context) const = 0;

  TextModelOptions options;  // backend and experts filled in
  ModelInfo info;
  std::vector<kernels::RowFormat> formats;  // of info.layout's stores
  int experts = 0;
  int experts_per_token = 0;
};

std::shared_ptr<const LoadedModel> NewLoadedModel(std::shared_ptr<const TextModel> model);

}  // namespace weir::engine
