// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v3_pass.h"

#include <algorithm>
#include <cmath>

namespace weir::engine {
namespace {

using kernels::Matrix;
using kernels::Tensor;

// Of the two latent norms and the index key's, whatever rms_norm_eps says.
constexpr float kLatentNormEpsilon = 1e-6f;
// The model's stores.
constexpr int kLatentStore = 0;
constexpr int kIndexKeyStore = 1;

double SoftmaxScale(const DeepseekV3Config& c) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.nope_dim + c.rope_dim));
  if (!c.yarn) return scale;
  const double m = 0.1 * c.yarn->mscale_all_dim * std::log(c.yarn->factor) + 1.0;
  return scale * m * m;
}

}  // namespace

V3Pass::V3Pass(const DeepseekV3Config& config, const DeepseekV3Weights& weights,
               const PassContext& context)
    : config_(config),
      weights_(weights),
      softmax_scale_(static_cast<float>(SoftmaxScale(config))),
      ops_(context.backend.ops()),
      kv_(context.kv),
      stream_(context.stream),
      ep_(context.ep),
      tap_(context.tap) {
  TakeBuffers(context);
}

void V3Pass::TakeBuffers(const PassContext& context) {
  DeviceArena* arena = &context.arena;
  const DeepseekV3Config& c = config_;
  const int64_t rows = context.rows_max;
  const int64_t entries = std::max<int64_t>(rows * c.experts_per_token, 1);
  const int64_t mlp = std::max(c.dense_layers > 0 ? int64_t{c.dense_width} : 1,
                               int64_t{c.shared_experts} * c.expert_width);
  hidden_ = arena->Floats(rows, c.hidden);
  normed_ = arena->Floats(rows, c.hidden);
  block_ = arena->Floats(rows, c.hidden);
  q_latent_in_ = arena->Floats(rows, std::max(c.q_rank, 1));
  q_ = arena->Floats(rows, c.heads, c.nope_dim + c.rope_dim);
  kv_a_ = arena->Floats(rows, c.kv_rank + c.rope_dim);
  q_latent_ = arena->Floats(rows, c.heads, c.kv_rank);
  attended_ = arena->Floats(rows, c.heads, c.kv_rank);
  value_ = arena->Floats(rows, c.heads, c.value_dim);
  scores_ = arena->Bytes(size_t{8} * static_cast<size_t>(c.positions_max));
  if (c.index_heads > 0) {
    index_q_ = arena->Floats(rows, c.index_heads, c.index_dim);
    index_key_ = arena->Floats(rows, c.index_dim);
    index_weight_ = arena->Floats(rows, c.index_heads);
    index_scratch_ = arena->Floats(context.backend.lanes(), 3 * int64_t{c.positions_max});
    selected_ = arena->Ints(rows, c.index_topk);
  }
  gate_ = arena->Floats(rows, mlp);
  up_ = arena->Floats(rows, mlp);
  expert_ = arena->Ints(rows, std::max(c.experts_per_token, 1));
  weight_ = arena->Floats(entries);
  expert_hidden_ = arena->Floats(2, entries, c.expert_width);
  expert_out_ = arena->Floats(entries, c.hidden);
  sampled_ = arena->Floats(context.samples_max, c.hidden);
}

void V3Pass::Run(const StepInputs& inputs, const Tensor& logits) {
  inputs_ = &inputs;
  rows_ = &inputs.rows();
  Tap("positions", -1, rows_->position);
  ops_.Embed(stream_, {rows_, weights_.embedding, hidden_});
  for (int i = 0; i < config_.layers; ++i) {
    const DeepseekV3Layer& layer = weights_.layers[static_cast<size_t>(i)];
    Norm(hidden_, layer.input_norm, config_.norm_epsilon, normed_, rows_->count);
    Attention(i, layer);
    AddBlock();
    Norm(hidden_, layer.post_attention_norm, config_.norm_epsilon, normed_, rows_->count);
    FeedForward(i, layer);
    AddBlock();
    Tap("layer", i, hidden_);
  }
  if (inputs.sample_count() > 0) Logits(logits);
}

void V3Pass::Attention(int index, const DeepseekV3Layer& layer) {
  const DeepseekV3Config& c = config_;
  const kernels::PagedKv kv = kv_.Block(kLatentStore, index, *inputs_);
  if (layer.q.empty()) {
    Linear(normed_, layer.q_a, q_latent_in_);
    Norm(q_latent_in_, layer.q_a_norm, kLatentNormEpsilon, q_latent_in_, rows_->count);
    Linear(q_latent_in_, layer.q_b, q_);
  } else {
    Linear(normed_, layer.q, q_);
  }
  ops_.RopeQuery(stream_, {rows_, c.heads, c.nope_dim, c.rope_dim, weights_.rope_frequency, q_});
  Linear(normed_, layer.kv_a, kv_a_);
  ops_.MlaKvWrite(stream_, {rows_, c.kv_rank, c.rope_dim, kLatentNormEpsilon, layer.kv_a_norm,
                            weights_.rope_frequency, kv_a_, kv});
  if (c.index_heads > 0) Select(index, layer.index);
  kernels::MlaAbsorbArgs absorb{rows_->count, c.heads,    c.nope_dim, c.rope_dim, c.value_dim,
                                c.kv_rank,    layer.kv_b, q_,         q_latent_};
  ops_.MlaAbsorbQuery(stream_, absorb);
  ops_.MlaAttention(stream_, {rows_, c.heads, c.kv_rank, c.nope_dim, c.rope_dim, softmax_scale_,
                              q_latent_, q_, kv, scores_, attended_, c.index_topk, selected_});
  absorb.in = attended_;
  absorb.out = value_;
  ops_.MlaExpandValue(stream_, absorb);
  Linear(value_, layer.o, block_);
}

// Which tokens attention reads: keeps the rows' index keys, then scores every token.
void V3Pass::Select(int index, const DeepseekV3Index& indexer) {
  const DeepseekV3Config& c = config_;
  const kernels::PagedKv keys = kv_.Block(kIndexKeyStore, index, *inputs_);
  Linear(normed_, indexer.key, index_key_);
  ops_.LayerNorm(stream_, {rows_->count, c.index_dim, kLatentNormEpsilon, index_key_,
                           indexer.key_norm, indexer.key_bias, index_key_});
  ops_.IndexRotate(stream_,
                   {rows_, 1, c.index_dim, c.rope_dim, weights_.rope_frequency, index_key_});
  kernels::EntryWriteArgs keep;
  keep.rows = rows_;
  keep.width = c.index_dim;
  keep.x = index_key_;
  keep.store = keys;
  ops_.EntryWrite(stream_, keep);
  Linear(q_latent_in_, indexer.q, index_q_);
  ops_.IndexRotate(
      stream_, {rows_, c.index_heads, c.index_dim, c.rope_dim, weights_.rope_frequency, index_q_});
  ops_.RoundTrip(stream_,
                 {int64_t{rows_->count} * c.index_heads, c.index_dim, keys.format, index_q_});
  Linear(normed_, indexer.head_weight, index_weight_);

  kernels::IndexSelectArgs select;
  select.rows = rows_;
  select.heads = c.index_heads;
  select.width = c.index_dim;
  select.select = c.index_topk;
  select.scale = static_cast<float>(1.0 / std::sqrt(double{1} * c.index_dim * c.index_heads));
  select.q = index_q_;
  select.weight = index_weight_;
  select.keys = keys;
  select.entries_max = c.positions_max;
  select.scratch = index_scratch_;
  select.selected = selected_;
  ops_.IndexSelect(stream_, select);
  Tap("selected", index, selected_);
}

void V3Pass::FeedForward(int index, const DeepseekV3Layer& layer) {
  if (!layer.mlp.gate.empty()) {
    Mlp(layer.mlp, block_);
  } else {
    ops_.Zero(stream_, block_, int64_t{rows_->count} * config_.hidden);
  }
  if (layer.moe()) Experts(index, layer);
}

void V3Pass::Mlp(const kernels::ExpertWeights& mlp, const Tensor& out) {
  Linear(normed_, mlp.gate, gate_);
  Linear(normed_, mlp.up, up_);
  ops_.Swiglu(stream_, {rows_->count * mlp.gate.rows, gate_, up_});
  Linear(gate_, mlp.down, out);
}

// Adds the routed experts' answer to the block's output.
void V3Pass::Experts(int index, const DeepseekV3Layer& layer) {
  const DeepseekV3Config& c = config_;
  kernels::MoeRouteArgs route;
  route.rows = rows_->count;
  route.experts = c.experts;
  route.choices = c.experts_per_token;
  if (c.router != RouterKind::kSoftmaxGreedy) {
    route.groups = c.groups;
    route.groups_kept = c.groups_kept;
  }
  route.normalise = c.normalise;
  route.scale = static_cast<float>(c.routed_scale);
  if (c.router != RouterKind::kSigmoidBias) route.score = kernels::RouteScore::kSoftmax;
  route.x = normed_;
  route.gate = layer.router;
  route.bias = layer.router_bias;
  route.expert = expert_;
  route.weight = weight_;
  ops_.MoeRoute(stream_, route);
  Tap("experts", index, expert_);
  const EpBatch batch =
      ep_.Dispatch(stream_, {index - c.dense_layers, rows_->count, normed_, expert_});
  ops_.ExpertFfn(stream_, {batch.entries_max, c.experts_per_token, layer.experts, batch.x,
                           batch.entry, batch.slot_begin, expert_hidden_, expert_out_});
  ep_.Combine(stream_, {rows_->count, c.hidden, expert_, weight_, expert_out_, block_});
}

void V3Pass::Logits(const Tensor& logits) {
  const int count = inputs_->sample_count();
  ops_.GatherRows(stream_, {count, config_.hidden, hidden_, inputs_->sample_index(), sampled_});
  Norm(sampled_, weights_.final_norm, config_.norm_epsilon, sampled_, count);
  ops_.Linear(stream_, {count, sampled_, weights_.head, logits, true});
  if (tap_) tap_("logits", -1, stream_, logits, count);
}

void V3Pass::Norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& out, int count) {
  const int width = static_cast<int>(x.shape[1]);
  ops_.RmsNorm(stream_, {count, width, static_cast<float>(eps), x, width, weight, out});
}

void V3Pass::Linear(const Tensor& x, const Matrix& weight, const Tensor& out) {
  ops_.Linear(stream_, {rows_->count, x, weight, out});
}

void V3Pass::AddBlock() {
  ops_.Add(stream_, {int64_t{rows_->count} * config_.hidden, hidden_, block_});
}

}  // namespace weir::engine
