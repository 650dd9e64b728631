// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v41.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "engine/checkpoint/deepseek_v41_config.h"
#include "engine/checkpoint/engram_token_map.h"
#include "engine/ep/ep_ref.h"
#include "engine/model/choose_backend.h"
#include "engine/model/deepseek_v41_pass.h"
#include "engine/model/step_sampler.h"

namespace weir::engine {
namespace {

constexpr uint32_t kBlockTokens = 128;  // decisions, ruling 3
constexpr int kSamplesPerPass = 64;

// What models of one checkpoint share.
struct Shared {
  DeepseekV41Config config;
  TextModelOptions options;
  V41Stores stores;
  std::vector<int32_t> token_map;
  ModelInfo info;
  std::unique_ptr<const DeepseekV41Weights> weights;  // destroyed before options.backend
};

class DeepseekV41Model final : public Model {
 public:
  DeepseekV41Model(std::shared_ptr<const Shared> shared, const KvMemory& memory);
  ~DeepseekV41Model() override { stream_->Wait(stream_->Record()); }  // it works in our buffers

  void Launch(const StepPlan& plan) override;
  bool Collect(StepId id, bool wait, StepResult* out) override;

 private:
  V41Setting Setting() const;
  void StartPass();

  // Constant after construction.
  const std::shared_ptr<const Shared> shared_;
  const KvStores stores_;
  const std::unique_ptr<kernels::Stream> stream_;
  DeviceArena arena_;
  StepSampler sampler_;
  std::unique_ptr<EpComm> ep_;
  std::unique_ptr<StepInputs> inputs_;
  std::unique_ptr<V41Pass> pass_;

  // The step in flight.
  StepId step_;
  bool running_ = false;  // a pass of it
  kernels::Event pass_done_;
  StepResult result_;
};

PassLimits LimitsOf(const Shared& shared) {
  PassLimits limits;
  limits.rows = shared.options.rows_per_pass;
  limits.samples = kSamplesPerPass;
  limits.vocab = shared.config.vocab;
  limits.positions_max = shared.info.positions_max;
  limits.block_tokens = shared.info.layout.block_tokens();
  for (int part = 0; part < kPartCount; ++part) {
    limits.parts[part] = shared.info.layout.has(static_cast<Part>(part));
  }
  limits.states = true;
  return limits;
}

DeepseekV41Model::DeepseekV41Model(std::shared_ptr<const Shared> shared, const KvMemory& memory)
    : shared_(std::move(shared)),
      stores_(shared_->info.layout, shared_->stores.formats, memory),
      stream_(shared_->options.backend->NewStream()),
      arena_(shared_->options.backend.get()),
      sampler_(shared_->options.backend->ops(), kSamplesPerPass, shared_->config.vocab, &arena_) {
  const DeepseekV41Config& c = shared_->config;
  kernels::Backend* backend = shared_->options.backend.get();
  auto inputs = StepInputs::Create(backend, LimitsOf(*shared_), c.stop_tokens);
  auto ep = NewEpRef(backend, shared_->options.experts,
                     {shared_->options.rows_per_pass, c.experts_per_token, c.experts});
  // A process that cannot hold one step's buffers cannot serve; it stops before it is ready.
  WEIR_CHECK(inputs.ok() && ep.ok());
  inputs_ = *std::move(inputs);
  ep_ = *std::move(ep);
  pass_ = std::make_unique<V41Pass>(Setting(), stores_, stream_.get(), ep_.get(), &arena_);
  WEIR_CHECK(arena_.status().ok());
}

V41Setting DeepseekV41Model::Setting() const {
  const auto pad = static_cast<size_t>(shared_->config.engram.pad_token);
  return {shared_->config,
          shared_->stores,
          *shared_->weights,
          shared_->options.tap,
          *shared_->options.backend,
          pad < shared_->token_map.size() ? shared_->token_map[pad] : 0,
          shared_->options.rows_per_pass,
          kSamplesPerPass};
}

void DeepseekV41Model::Launch(const StepPlan& plan) {
  step_ = plan.step;
  result_.Clear();
  result_.step = plan.step;
  stores_.CopyPages(*stream_, plan);
  inputs_->Begin(plan);
  StartPass();
}

// A pass reuses the host side of the inputs and the results, so it starts when the one before it
// has been reported.
void DeepseekV41Model::StartPass() {
  running_ = inputs_->NextPass(*stream_);
  if (!running_) return;
  pass_->Run(*inputs_, sampler_.logits());
  if (inputs_->sample_count() > 0) sampler_.Choose(*stream_, *inputs_);
  pass_done_ = stream_->Record();
}

bool DeepseekV41Model::Collect(StepId id, bool wait, StepResult* out) {
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

class LoadedDeepseekV41 final : public LoadedModel {
 public:
  explicit LoadedDeepseekV41(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
  const ModelInfo& info() const override { return shared_->info; }
  std::unique_ptr<Model> Instantiate(const KvMemory& memory) const override {
    return std::make_unique<DeepseekV41Model>(shared_, memory);
  }

 private:
  const std::shared_ptr<const Shared> shared_;
};

absl::Status Describe(const std::string& config_json, Shared* shared) {
  const DeepseekV41Config& c = shared->config;
  ModelInfo& info = shared->info;
  info.family = "deepseek_v41";
  info.vocab = static_cast<uint32_t>(c.vocab);
  info.positions_max = static_cast<Position>(c.positions_max);
  info.window = static_cast<uint32_t>(c.window);
  info.window_layers = static_cast<uint32_t>(shared->stores.encoder_layers);
  info.history = c.engram.empty() ? 0 : static_cast<uint32_t>(c.engram.orders);
  info.decoder_tail_rows = info.window;  // decisions, ruling 4
  info.layout = shared->stores.layout;
  info.stop_tokens = c.stop_tokens;
  const std::string map(reinterpret_cast<const char*>(shared->token_map.data()),
                        shared->token_map.size() * sizeof(int32_t));
  const Sha256Digest weights = shared->weights->checkpoint().Digest();
  info.digest = HexOf(Sha256(BytesOf(config_json + HexOf(weights) + map)));
  return info.layout.Validate();
}

// What the forward pass takes for granted beyond what every V4.1 configuration must say.
absl::Status CheckShape(const DeepseekV41Config& c) {
  const int encoder = c.kv_sources.empty() ? 0 : c.kv_sources.back() + 1;
  for (const int layer : c.engram.layers) {
    if (layer >= encoder) {
      return Error(Reason::kBadField, "engram_layer_ids must lie in the encoder",
                   "engram_layer_ids");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV41(const std::string& directory,
                                                                   const std::string& config_json,
                                                                   const LoadOptions& options) {
  return LoadDeepseekV41With(directory, config_json, options, {});
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV41With(
    const std::string& directory, const std::string& config_json, const LoadOptions& options,
    TextModelOptions more) {
  auto shared = std::make_shared<Shared>();
  WEIR_ASSIGN(shared->config, ParseDeepseekV41Config(config_json));
  const DeepseekV41Config& c = shared->config;
  WEIR_TRY(CheckShape(c));
  WEIR_ASSIGN(const kernels::Numerics numerics, NumericsOf(options));
  if (more.backend == nullptr) {
    WEIR_ASSIGN(more.backend, ChooseBackend(options));
  }
  if (more.experts.slot_of.empty()) more.experts = ExpertMap::Identity(c.layers, c.experts);
  shared->options = std::move(more);
  shared->stores = MakeV41Stores(c, options.block_tokens != 0 ? options.block_tokens : kBlockTokens,
                                 numerics != kernels::Numerics::kFp32);
  WEIR_TRY(shared->stores.layout.Validate());
  if (!c.engram.empty()) {
    WEIR_ASSIGN(shared->token_map, ReadEngramTokenMap(directory, c));
  }
  WEIR_ASSIGN(std::unique_ptr<Weights> checkpoint, Weights::Open(directory));
  WEIR_ASSIGN(shared->weights,
              DeepseekV41Weights::Load(c, std::move(checkpoint), shared->token_map,
                                       shared->options.experts, shared->options.backend.get()));
  WEIR_TRY(Describe(config_json, shared.get()));
  return std::shared_ptr<const LoadedModel>(std::make_shared<LoadedDeepseekV41>(shared));
}

}  // namespace weir::engine
