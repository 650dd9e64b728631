// SPDX-License-Identifier: Apache-2.0
#include "engine/model/step_runner.h"

#include <utility>

#include "base/stdx/check.h"
#include "engine/ep/ep_ref.h"
#include "engine/model/step_sampler.h"

namespace weir::engine {
namespace {

constexpr int kSamplesPerPass = 64;

class StepRunner final : public Model {
 public:
  StepRunner(std::shared_ptr<const TextModel> model, const KvMemory& memory);
  ~StepRunner() override { stream_->Wait(stream_->Record()); }  // it works in our buffers

  void Launch(const StepPlan& plan) override;
  bool Collect(StepId id, bool wait, StepResult* out) override;

 private:
  void StartPass();

  // Constant after construction.
  const std::shared_ptr<const TextModel> model_;
  const KvStores stores_;
  const std::unique_ptr<kernels::Stream> stream_;
  DeviceArena arena_;
  StepSampler sampler_;
  std::unique_ptr<StepInputs> inputs_;
  std::unique_ptr<EpComm> ep_;
  std::unique_ptr<ForwardPass> pass_;

  // The step in flight.
  StepId step_;
  bool running_ = false;  // a pass of it
  kernels::Event pass_done_;
  StepResult result_;
};

PassLimits LimitsOf(const TextModel& model) {
  const CacheLayout& layout = model.info.layout;
  PassLimits limits;
  limits.rows = model.options.rows_per_pass;
  limits.samples = kSamplesPerPass;
  limits.vocab = static_cast<int>(model.info.vocab);
  limits.positions_max = model.info.positions_max;
  limits.block_tokens = layout.block_tokens();
  for (int part = 0; part < kPartCount; ++part) {
    limits.parts[part] = layout.has(static_cast<Part>(part));
  }
  limits.states = layout.state_bytes() > 0;
  return limits;
}

StepRunner::StepRunner(std::shared_ptr<const TextModel> model, const KvMemory& memory)
    : model_(std::move(model)),
      stores_(model_->info.layout, model_->formats, memory),
      stream_(model_->options.backend->NewStream()),
      arena_(model_->options.backend.get()),
      sampler_(model_->options.backend->ops(), kSamplesPerPass,
               static_cast<int>(model_->info.vocab), &arena_) {
  kernels::Backend* backend = model_->options.backend.get();
  const int rows = model_->options.rows_per_pass;
  auto inputs = StepInputs::Create(backend, LimitsOf(*model_), model_->info.stop_tokens);
  auto ep = NewEpRef(backend, model_->options.experts,
                     {rows, model_->experts_per_token, model_->experts});
  WEIR_CHECK(inputs.ok() && ep.ok());
  inputs_ = *std::move(inputs);
  ep_ = *std::move(ep);
  pass_ = model_->NewPass(
      {*backend, *stream_, stores_, *ep_, arena_, model_->options.tap, rows, kSamplesPerPass});
  WEIR_CHECK(arena_.status().ok());
}

void StepRunner::Launch(const StepPlan& plan) {
  step_ = plan.step;
  result_.Clear();
  result_.step = plan.step;
  stores_.CopyPages(*stream_, plan);
  inputs_->Begin(plan);
  StartPass();
}

// A pass reuses the host side of the inputs and the results, so it starts when the one before it
// has been reported.
void StepRunner::StartPass() {
  running_ = inputs_->NextPass(*stream_);
  if (!running_) return;
  pass_->Run(*inputs_, sampler_.logits());
  if (inputs_->sample_count() > 0) sampler_.Choose(*stream_, *inputs_);
  pass_done_ = stream_->Record();
}

bool StepRunner::Collect(StepId id, bool wait, StepResult* out) {
  WEIR_CHECK(id == step_);
  while (running_) {
    if (!wait && !stream_->Done(pass_done_)) return false;
    stream_->Wait(pass_done_);
    if (inputs_->sample_count() > 0) sampler_.Report(*inputs_, &result_);
    StartPass();
  }
  std::swap(*out, result_);
  return true;
}

class LoadedTextModel final : public LoadedModel {
 public:
  explicit LoadedTextModel(std::shared_ptr<const TextModel> model) : model_(std::move(model)) {}
  const ModelInfo& info() const override { return model_->info; }
  std::unique_ptr<Model> Instantiate(const KvMemory& memory) const override {
    return std::make_unique<StepRunner>(model_, memory);
  }

 private:
  const std::shared_ptr<const TextModel> model_;
};

}  // namespace

std::shared_ptr<const LoadedModel> NewLoadedModel(std::shared_ptr<const TextModel> model) {
  return std::make_shared<LoadedTextModel>(std::move(model));
}

}  // namespace weir::engine
