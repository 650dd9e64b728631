// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v3.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "engine/ep/ep_ref.h"
#include "engine/model/choose_backend.h"
#include "engine/model/deepseek_v3_weights.h"
#include "engine/model/kv_stores.h"
#include "engine/model/step_inputs.h"
#include "engine/model/step_sampler.h"

namespace weir::engine {
namespace {

using kernels::Matrix;
using kernels::RowFormat;
using kernels::Tensor;

constexpr uint32_t kBlockTokens = 64;        // decisions, ruling 3
constexpr float kLatentNormEpsilon = 1e-6f;  // of the two latent norms, whatever rms_norm_eps says
constexpr int kSamplesPerPass = 64;

// What models of one checkpoint share.
struct Shared {
  DeepseekV3Config config;
  TextModelOptions options;
  RowFormat kv_format = RowFormat::kBf16;
  ModelInfo info;
  std::unique_ptr<const DeepseekV3Weights> weights;  // destroyed before options.backend
};

// Activations of one pass.
struct Buffers {
  Buffers(const DeepseekV3Config& c, int64_t rows, DeviceArena* arena) {
    const int64_t entries = rows * c.experts_per_token;
    const int64_t mlp = std::max(c.dense_layers > 0 ? int64_t{c.dense_width} : 0,
                                 int64_t{c.shared_experts} * c.expert_width);
    hidden = arena->Floats(rows, c.hidden);
    normed = arena->Floats(rows, c.hidden);
    block = arena->Floats(rows, c.hidden);
    q_latent_in = arena->Floats(rows, std::max(c.q_rank, 1));
    q = arena->Floats(rows, c.heads, c.nope_dim + c.rope_dim);
    kv_a = arena->Floats(rows, c.kv_rank + c.rope_dim);
    q_latent = arena->Floats(rows, c.heads, c.kv_rank);
    attended = arena->Floats(rows, c.heads, c.kv_rank);
    value = arena->Floats(rows, c.heads, c.value_dim);
    scores = arena->Bytes(size_t{8} * static_cast<size_t>(c.positions_max));
    gate = arena->Floats(rows, std::max<int64_t>(mlp, 1));
    up = arena->Floats(rows, std::max<int64_t>(mlp, 1));
    expert = arena->Ints(rows, std::max(c.experts_per_token, 1));
    weight = arena->Floats(std::max<int64_t>(entries, 1));
    expert_hidden = arena->Floats(2, std::max<int64_t>(entries, 1), c.expert_width);
    expert_out = arena->Floats(std::max<int64_t>(entries, 1), c.hidden);
    sampled = arena->Floats(kSamplesPerPass, c.hidden);
  }

  Tensor hidden, normed, block;  // residual; input and output of a block
  Tensor q_latent_in, q, kv_a, q_latent, attended, value, scores;  // attention
  Tensor gate, up, expert, weight, expert_hidden, expert_out;      // feed-forward
  Tensor sampled;
};

class DeepseekV3Model final : public Model {
 public:
  DeepseekV3Model(std::shared_ptr<const Shared> shared, const KvMemory& memory);
  ~DeepseekV3Model() override { stream_->Wait(stream_->Record()); }  // it works in our buffers

  void Launch(const StepPlan& plan) override;
  bool Collect(StepId id, bool wait, StepResult* out) override;

 private:
  void StartPass();
  void RunPass();
  void Attention(int index, const DeepseekV3Layer& layer);
  void FeedForward(int index, const DeepseekV3Layer& layer);
  void Mlp(const kernels::ExpertWeights& mlp, const Tensor& out);
  void Experts(int index, const DeepseekV3Layer& layer);
  void Logits();

  void Norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out, int rows);
  void Linear(const Tensor& x, const Matrix& weight, const Tensor& out, int rows);
  void Add(const Tensor& sum, const Tensor& x, int64_t width);
  int rows() const { return inputs_->rows().count; }
  void Tap(std::string_view what, int layer, const Tensor& tensor, int rows) {
    if (shared_->options.tap) shared_->options.tap(what, layer, *stream_, tensor, rows);
  }

  // Constant after construction.
  const std::shared_ptr<const Shared> shared_;
  const DeepseekV3Config& config_;
  const DeepseekV3Weights& weights_;
  const kernels::Ops& ops_;
  const KvStores stores_;
  const std::unique_ptr<kernels::Stream> stream_;
  float softmax_scale_ = 0;
  DeviceArena arena_;
  const Buffers buffers_;
  StepSampler sampler_;
  std::unique_ptr<StepInputs> inputs_;
  std::unique_ptr<EpComm> ep_;

  // The step in flight.
  StepId step_;
  bool running_ = false;  // a pass of it
  kernels::Event pass_done_;
  StepResult result_;
};

double SoftmaxScale(const DeepseekV3Config& c) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.nope_dim + c.rope_dim));
  if (!c.yarn) return scale;
  const double m = 0.1 * c.yarn->mscale_all_dim * std::log(c.yarn->factor) + 1.0;
  return scale * m * m;
}

DeepseekV3Model::DeepseekV3Model(std::shared_ptr<const Shared> shared, const KvMemory& memory)
    : shared_(std::move(shared)),
      config_(shared_->config),
      weights_(*shared_->weights),
      ops_(shared_->options.backend->ops()),
      stores_(shared_->info.layout, {shared_->kv_format}, memory),
      stream_(shared_->options.backend->NewStream()),
      softmax_scale_(static_cast<float>(SoftmaxScale(config_))),
      arena_(shared_->options.backend.get()),
      buffers_(config_, shared_->options.rows_per_pass, &arena_),
      sampler_(ops_, kSamplesPerPass, config_.vocab, &arena_) {
  PassLimits limits;
  limits.rows = shared_->options.rows_per_pass;
  limits.samples = kSamplesPerPass;
  limits.vocab = config_.vocab;
  limits.positions_max = shared_->info.positions_max;
  limits.block_tokens = shared_->info.layout.block_tokens();
  auto inputs = StepInputs::Create(shared_->options.backend.get(), limits, config_.stop_tokens);
  auto ep = NewEpRef(shared_->options.backend.get(), shared_->options.experts,
                     {limits.rows, config_.experts_per_token, config_.experts});
  // A process that cannot hold one step's buffers cannot serve; it stops before it is ready.
  WEIR_CHECK(arena_.status().ok() && inputs.ok() && ep.ok());
  inputs_ = *std::move(inputs);
  ep_ = *std::move(ep);
}

void DeepseekV3Model::Launch(const StepPlan& plan) {
  step_ = plan.step;
  result_.Clear();
  result_.step = plan.step;
  stores_.CopyPages(*stream_, plan);
  inputs_->Begin(plan);
  StartPass();
}

// A pass reuses the host side of the inputs and the results, so it starts when the one before it has
// been reported.
void DeepseekV3Model::StartPass() {
  running_ = inputs_->NextPass(*stream_);
  if (!running_) return;
  RunPass();
  pass_done_ = stream_->Record();
}

bool DeepseekV3Model::Collect(StepId id, bool wait, StepResult* out) {
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

// One pass over the layers: the whole forward computation.
void DeepseekV3Model::RunPass() {
  const Buffers& b = buffers_;
  Tap("positions", -1, inputs_->rows().position, rows());
  ops_.Embed(*stream_, {&inputs_->rows(), weights_.embedding, b.hidden});
  for (int i = 0; i < config_.layers; ++i) {
    const DeepseekV3Layer& layer = weights_.layers[static_cast<size_t>(i)];
    Norm(b.hidden, layer.input_norm, config_.norm_epsilon, b.normed, rows());
    Attention(i, layer);
    Add(b.hidden, b.block, config_.hidden);
    Norm(b.hidden, layer.post_attention_norm, config_.norm_epsilon, b.normed, rows());
    FeedForward(i, layer);
    Add(b.hidden, b.block, config_.hidden);
    Tap("layer", i, b.hidden, rows());
  }
  if (inputs_->sample_count() == 0) return;
  Logits();
  sampler_.Choose(*stream_, *inputs_);
}

void DeepseekV3Model::Attention(int index, const DeepseekV3Layer& layer) {
  const Buffers& b = buffers_;
  const DeepseekV3Config& c = config_;
  const kernels::PagedKv kv = stores_.Block(0, index, *inputs_);
  if (layer.q.empty()) {
    Linear(b.normed, layer.q_a, b.q_latent_in, rows());
    Norm(b.q_latent_in, layer.q_a_norm, kLatentNormEpsilon, b.q_latent_in, rows());
    Linear(b.q_latent_in, layer.q_b, b.q, rows());
  } else {
    Linear(b.normed, layer.q, b.q, rows());
  }
  ops_.RopeQuery(*stream_,
                 {&inputs_->rows(), c.heads, c.nope_dim, c.rope_dim, weights_.rope_frequency, b.q});
  Linear(b.normed, layer.kv_a, b.kv_a, rows());
  ops_.MlaKvWrite(*stream_, {&inputs_->rows(), c.kv_rank, c.rope_dim, kLatentNormEpsilon,
                             layer.kv_a_norm, weights_.rope_frequency, b.kv_a, kv});
  kernels::MlaAbsorbArgs absorb{rows(),    c.heads,    c.nope_dim, c.rope_dim, c.value_dim,
                                c.kv_rank, layer.kv_b, b.q,        b.q_latent};
  ops_.MlaAbsorbQuery(*stream_, absorb);
  ops_.MlaAttention(*stream_, {&inputs_->rows(), c.heads, c.kv_rank, c.nope_dim, c.rope_dim,
                               softmax_scale_, b.q_latent, b.q, kv, b.scores, b.attended});
  absorb.in = b.attended;
  absorb.out = b.value;
  ops_.MlaExpandValue(*stream_, absorb);
  Linear(b.value, layer.o, b.block, rows());
}

void DeepseekV3Model::FeedForward(int index, const DeepseekV3Layer& layer) {
  const Buffers& b = buffers_;
  if (!layer.mlp.gate.empty()) {
    Mlp(layer.mlp, b.block);
  } else {
    ops_.Zero(*stream_, b.block, int64_t{rows()} * config_.hidden);
  }
  if (layer.moe()) Experts(index, layer);
}

void DeepseekV3Model::Mlp(const kernels::ExpertWeights& mlp, const Tensor& out) {
  const Buffers& b = buffers_;
  Linear(b.normed, mlp.gate, b.gate, rows());
  Linear(b.normed, mlp.up, b.up, rows());
  ops_.Swiglu(*stream_, {rows() * mlp.gate.rows, b.gate, b.up});
  Linear(b.gate, mlp.down, out, rows());
}

// Adds the routed experts' answer to the block's output.
void DeepseekV3Model::Experts(int index, const DeepseekV3Layer& layer) {
  const Buffers& b = buffers_;
  const DeepseekV3Config& c = config_;
  ops_.MoeRoute(*stream_, {rows(), c.experts, c.groups, c.groups_kept, c.experts_per_token,
                           c.normalise, static_cast<float>(c.routed_scale), b.normed, layer.router,
                           layer.router_bias, b.expert, b.weight});
  Tap("experts", index, b.expert, rows());
  const EpBatch batch =
      ep_->Dispatch(*stream_, {index - c.dense_layers, rows(), b.normed, b.expert});
  ops_.ExpertFfn(*stream_, {batch.entries_max, c.experts_per_token, layer.experts, batch.x,
                            batch.entry, batch.slot_begin, b.expert_hidden, b.expert_out});
  ep_->Combine(*stream_, {rows(), c.hidden, b.expert, b.weight, b.expert_out, b.block});
}

void DeepseekV3Model::Logits() {
  const Buffers& b = buffers_;
  const int count = inputs_->sample_count();
  ops_.GatherRows(*stream_, {count, config_.hidden, b.hidden, inputs_->sample_index(), b.sampled});
  Norm(b.sampled, weights_.final_norm, config_.norm_epsilon, b.sampled, count);
  ops_.Linear(*stream_, {count, b.sampled, weights_.head, sampler_.logits(), true});
  Tap("logits", -1, sampler_.logits(), count);
}

void DeepseekV3Model::Norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                           int rows) {
  const int width = static_cast<int>(x.shape[1]);
  ops_.RmsNorm(*stream_, {rows, width, eps, x, width, weight, out});
}

void DeepseekV3Model::Linear(const Tensor& x, const Matrix& weight, const Tensor& out, int rows) {
  ops_.Linear(*stream_, {rows, x, weight, out});
}

void DeepseekV3Model::Add(const Tensor& sum, const Tensor& x, int64_t width) {
  ops_.Add(*stream_, {rows() * width, sum, x});
}

class LoadedDeepseekV3 final : public LoadedModel {
 public:
  explicit LoadedDeepseekV3(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
  const ModelInfo& info() const override { return shared_->info; }
  std::unique_ptr<Model> Instantiate(const KvMemory& memory) const override {
    return std::make_unique<DeepseekV3Model>(shared_, memory);
  }

 private:
  const std::shared_ptr<const Shared> shared_;
};

absl::Status Describe(const std::string& config_json, const Weights& checkpoint, Shared* shared) {
  const DeepseekV3Config& c = shared->config;
  Store store;
  store.name = "mla.latent";
  store.kind = StoreKind::kBlock;
  store.part = Part::kDecoder;
  store.layers = static_cast<uint16_t>(c.layers);
  store.row_bytes =
      static_cast<uint32_t>(kernels::RowBytes(shared->kv_format, c.kv_rank + c.rope_dim));
  ModelInfo& info = shared->info;
  info.family = "deepseek_v3";
  info.vocab = static_cast<uint32_t>(c.vocab);
  info.positions_max = static_cast<Position>(c.positions_max);
  info.layout = CacheLayout(kBlockTokens, {store});
  info.stop_tokens = c.stop_tokens;
  const Sha256Digest weights = checkpoint.Digest();
  info.digest = HexOf(Sha256(BytesOf(config_json + HexOf(weights))));
  return info.layout.Validate();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV3(const std::string& directory,
                                                                  const std::string& config_json,
                                                                  const LoadOptions& options) {
  return LoadDeepseekV3With(directory, config_json, options, {});
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV3With(
    const std::string& directory, const std::string& config_json, const LoadOptions& options,
    TextModelOptions more) {
  auto shared = std::make_shared<Shared>();
  WEIR_ASSIGN(shared->config, ParseDeepseekV3Config(config_json));
  WEIR_ASSIGN(const kernels::Numerics numerics, NumericsOf(options));
  if (numerics == kernels::Numerics::kFp32) shared->kv_format = RowFormat::kF32;
  const DeepseekV3Config& c = shared->config;
  if (more.backend == nullptr) {
    WEIR_ASSIGN(more.backend, ChooseBackend(options));
  }
  if (more.experts.slot_of.empty()) {
    more.experts = ExpertMap::Identity(c.layers - c.dense_layers, c.experts);
  }
  shared->options = std::move(more);
  WEIR_ASSIGN(const std::unique_ptr<Weights> checkpoint, Weights::Open(directory));
  WEIR_ASSIGN(shared->weights, DeepseekV3Weights::Load(c, *checkpoint, shared->options.experts,
                                                       shared->options.backend.get()));
  WEIR_TRY(Describe(config_json, *checkpoint, shared.get()));
  return std::shared_ptr<const LoadedModel>(std::make_shared<LoadedDeepseekV3>(shared));
}

}  // namespace weir::engine
