// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v41_pass.h"

#include <algorithm>
#include <cmath>

#include "base/stdx/planted.h"

namespace weir::engine {

using kernels::Matrix;
using kernels::RowFormat;
using kernels::RowBytes;
using kernels::Tensor;

namespace {

float InverseRoot(double x) { return static_cast<float>(1.0 / std::sqrt(x)); }

}  // namespace

V41Pass::V41Pass(const V41Setting& setting, const PassContext& context)
    : setting_(setting),
      config_(setting.config),
      ops_(context.backend.ops()),
      kv_(context.kv),
      stream_(context.stream),
      ep_(context.ep),
      tap_(context.tap) {
  TakeBuffers(context);
  PlaceStores();
}

void V41Pass::TakeBuffers(const PassContext& context) {
  DeviceArena* arena = &context.arena;
  const DeepseekV41Config& c = config_;
  const int64_t rows = context.rows_max;
  const int64_t lanes = context.backend.lanes();
  const int64_t entries = rows * c.experts_per_token;
  for (int i : {0, 1}) {
    streams_[i] = arena->Floats(rows, c.streams, c.hidden);
    pre_[i] = arena->Floats(rows, c.streams);
    selected_[i] = arena->Ints(rows, c.index_topk);
    candidates_[i] = arena->Ints(rows, std::max(c.candidate_blocks, 1));
  }
  pre_attention_ = arena->Floats(rows, c.streams);
  post_ = arena->Floats(rows, c.streams);
  comb_ = arena->Floats(rows, c.streams, c.streams);
  hidden_ = arena->Floats(rows, c.hidden);
  normed_ = arena->Floats(rows, c.hidden);
  block_ = arena->Floats(rows, c.hidden);

  q_latent_ = arena->Floats(rows, c.q_rank);
  q_ = arena->Floats(rows, c.heads, c.head_dim);
  kv_row_ = arena->Floats(rows, c.head_dim);
  window_rows_ = arena->Bytes(static_cast<size_t>(rows) *
                              RowBytes(RowFormat::kF32, static_cast<size_t>(c.head_dim)));
  attention_scratch_ = arena->Floats(lanes, c.window + c.index_topk, c.head_dim);
  attended_ = arena->Floats(rows, c.heads, c.head_dim);
  low_ = arena->Floats(rows, c.o_groups, c.o_rank);
  pair_values_ = arena->Floats(rows, c.head_dim);
  pair_gates_ = arena->Floats(rows, c.head_dim);
  latent_ = arena->Floats(rows, c.head_dim);
  key_ = arena->Floats(rows, c.index_dim);
  index_q_ = arena->Floats(rows, c.index_heads, c.index_dim);
  index_weight_ = arena->Floats(rows, c.index_heads);
  index_scratch_ = arena->Floats(lanes, 3 * int64_t{c.positions_max});

  const int64_t columns = std::max<int64_t>(int64_t{c.engram.orders} * c.engram.heads, 1);
  ngram_id_ = arena->Ints(rows);
  table_row_ = arena->Ints(rows, columns);
  ngram_ = arena->Floats(rows, std::max<int64_t>(c.engram.width(), 1));
  ngram_kv_ = arena->Floats(rows, c.engram.empty() ? 1 : c.streams + 1, c.hidden);

  gate_ = arena->Floats(rows, c.expert_width);
  up_ = arena->Floats(rows, c.expert_width);
  expert_ = arena->Ints(rows, c.experts_per_token);
  expert_weight_ = arena->Floats(rows, c.experts_per_token);
  expert_hidden_ = arena->Floats(2, entries, c.expert_width);
  expert_out_ = arena->Floats(entries, c.hidden);
  sampled_streams_ = arena->Floats(context.samples_max, c.streams, c.hidden);
  sampled_pre_ = arena->Floats(context.samples_max, c.streams);
  sampled_ = arena->Floats(context.samples_max, c.hidden);
}

void V41Pass::PlaceStores() {
  const DeepseekV41Config& c = config_;
  int pairs = 0;
  for (int l = 0; l < c.layers; ++l) {
    LayerStores& s = layer_stores_.emplace_back();
    const int source = c.kv_source(l);
    if (source >= 0) {
      s.source = static_cast<int>(
          std::find(c.kv_sources.begin(), c.kv_sources.end(), source) - c.kv_sources.begin());
    }
    if (c.is_kv_source(l) && c.ratios[static_cast<size_t>(l)] == 2) s.pair = pairs++;
    const bool encoder = l < setting_.stores.encoder_layers;
    s.window = encoder ? setting_.stores.encoder_window : setting_.stores.decoder_window;
    s.window_layer = encoder ? l : l - setting_.stores.encoder_layers;
  }
}

void V41Pass::Run(const StepInputs& inputs, const Tensor& logits) {
  inputs_ = &inputs;
  rows_ = &inputs.rows();
  half_ = 0;
  Tap("positions", -1, rows_->position);
  ops_.EmbedStreams(stream_, {rows_, config_.streams, setting_.weights.embedding, streams_[0],
                              pre_[0]});
  if (!config_.engram.empty()) {
    ops_.EngramIds(stream_, {rows_, setting_.weights.token_map, ngram_id_});
  }
  for (int l = 0; l < config_.layers; ++l) {
    if (l == setting_.stores.encoder_layers) EnterDecoder();
    if (rows_->count == 0) break;
    Layer(l);
  }
  if (!config_.engram.empty()) {
    ops_.RingWrite(stream_, {&inputs.rows(), ngram_id_,
                             kv_.Ring(setting_.stores.history, 0, inputs)});
  }
  if (inputs.sample_count() > 0) Logits(logits);
}

// Narrows what later layers read to the pass's tail.
void V41Pass::EnterDecoder() {
  const kernels::StepRows& tail = inputs_->tail();
  const auto narrow = [&](Tensor (&pair)[2], int64_t width) {
    ops_.GatherRows(stream_, {tail.count, static_cast<int>(width), pair[0], inputs_->tail_index(),
                              pair[1]});
  };
  rows_ = &tail;
  Tap("positions", -1, rows_->position);
  if (tail.count == 0) return;
  narrow(streams_, int64_t{config_.streams} * config_.hidden);
  narrow(pre_, config_.streams);
  if (!config_.index_sources.empty()) narrow(selected_, config_.index_topk);
  if (config_.candidate_source >= 0) narrow(candidates_, config_.candidate_blocks);
  half_ = 1;
}

// Each site mixes by its own streams, but its `pre` collapses for the site after it.
void V41Pass::Layer(int l) {
  const V41Layer& layer = setting_.weights.layers[static_cast<size_t>(l)];
  const bool compressed = config_.ratios[static_cast<size_t>(l)] > 0;
  frequency_ =
      compressed ? setting_.weights.compressed_frequency : setting_.weights.frequency;
  if (!layer.engram.table.empty()) Engram(l, layer);

  Mix(layer.attention_mix, pre_attention_);
  Collapse(pre_[half_], layer.attention_norm);
  Attention(l, layer);
  Expand();

  Mix(layer.moe_mix, pre_[half_]);
  Collapse(pre_attention_, layer.moe_norm);
  Moe(l, layer);
  Expand();
  Tap("layer", l, streams_[half_]);
}

void V41Pass::Engram(int l, const V41Layer& layer) {
  const V41Engram& engram = layer.engram;
  const EngramConfig& c = config_.engram;
  const int columns = c.orders * c.heads;
  ops_.EngramRows(stream_, {rows_, c.orders + 1, c.heads, setting_.pad, ngram_id_,
                            kv_.Ring(setting_.stores.history, 0, *inputs_), engram.multiplier,
                            engram.prime, engram.offset, table_row_});
  Tap("engram", l, table_row_);
  ops_.EngramGather(stream_, {rows_->count, columns, table_row_, engram.table, ngram_});
  Linear(ngram_, engram.kv, ngram_kv_);
  ops_.EngramGate(stream_, {rows_, config_.streams, config_.hidden,
                            static_cast<float>(config_.norm_epsilon), ngram_kv_, engram.q_weight,
                            engram.k_weight, streams_[half_]});
}

void V41Pass::Attention(int l, const V41Layer& layer) {
  const DeepseekV41Config& c = config_;
  const V41Attention& a = layer.attention;
  const LayerStores& stores = layer_stores_[static_cast<size_t>(l)];
  Linear(normed_, a.q_a, q_latent_);
  Norm(q_latent_, a.q_norm, c.q_rank, rows_->count);
  Linear(q_latent_, a.q_b, q_);
  Rotate(q_, c.heads, c.head_dim, /*inverse=*/false);
  const kernels::RingKv ring = kv_.Ring(stores.window, stores.window_layer, *inputs_);
  Linear(normed_, a.kv, kv_row_);
  ops_.WindowRows(stream_, {rows_, c.head_dim, c.rope_dim, static_cast<float>(c.norm_epsilon),
                            ring.format, a.kv_norm, frequency_, kv_row_, window_rows_});
  if (c.is_kv_source(l)) Compress(l, layer);
  if (c.is_index_source(l)) Select(l, layer);

  kernels::SparseAttentionArgs attend;
  attend.rows = rows_;
  attend.heads = c.heads;
  attend.width = c.head_dim;
  attend.window = c.window - (IsPlanted(Planted::kShortWindow) ? 1 : 0);
  attend.scale = InverseRoot(c.head_dim);
  attend.q = q_;
  attend.fresh = window_rows_;
  attend.ring = ring;
  if (stores.source >= 0) {
    attend.select = c.index_topk;
    attend.entries =
        kv_.Block(setting_.stores.rows[static_cast<size_t>(stores.source)], 0, *inputs_);
    attend.selected = selected_[half_];
  }
  attend.sink = a.sink;
  attend.scratch = attention_scratch_;
  attend.out = attended_;
  ops_.SparseAttention(stream_, attend);
  ops_.RingWrite(stream_, {rows_, window_rows_, ring});
  Rotate(attended_, c.heads, c.head_dim, /*inverse=*/true);
  ops_.GroupedLinear(stream_, {rows_->count, c.o_groups, attended_, a.o_a, low_});
  Linear(low_, a.o_b, block_);
}

// A KV source: the latent of every entry that these rows complete, as a row and as an index key.
void V41Pass::Compress(int l, const V41Layer& layer) {
  const DeepseekV41Config& c = config_;
  const V41Compressor& compressor = layer.compressor;
  const LayerStores& stores = layer_stores_[static_cast<size_t>(l)];
  const auto source = static_cast<size_t>(stores.source);
  const auto eps = static_cast<float>(c.norm_epsilon);
  if (stores.pair >= 0) {
    const kernels::RingKv values = kv_.Ring(setting_.stores.pair_values, stores.pair, *inputs_);
    const kernels::RingKv gates = kv_.Ring(setting_.stores.pair_gates, stores.pair, *inputs_);
    ops_.Linear(stream_, {rows_->count, normed_, compressor.kv, pair_values_, true});
    ops_.Linear(stream_, {rows_->count, normed_, compressor.gate, pair_gates_, true});
    ops_.CompressPair(stream_, {rows_, c.head_dim, eps, pair_values_, pair_gates_, values, gates,
                                compressor.norm, latent_});
    ops_.RingWrite(stream_, {rows_, pair_values_, values});
    ops_.RingWrite(stream_, {rows_, pair_gates_, gates});
  } else {
    Linear(normed_, compressor.kv, latent_);
    Norm(latent_, compressor.norm, c.head_dim, rows_->count);
  }
  Linear(latent_, compressor.index_key, key_);
  ops_.EntryWrite(stream_, {rows_, c.head_dim, c.rope_dim, eps, Tensor(), frequency_, latent_,
                            kv_.Block(setting_.stores.rows[source], 0, *inputs_)});
  ops_.EntryWrite(stream_, {rows_, c.index_dim, c.rope_dim, eps, compressor.index_key_norm,
                            frequency_, key_,
                            kv_.Block(setting_.stores.keys[source], 0, *inputs_)});
}

// An index source: the entries that this layer and those that reuse its choice attend to.
void V41Pass::Select(int l, const V41Layer& layer) {
  const DeepseekV41Config& c = config_;
  const int source = layer_stores_[static_cast<size_t>(l)].source;
  const kernels::PagedKv keys =
      kv_.Block(setting_.stores.keys[static_cast<size_t>(source)], 0, *inputs_);
  Linear(q_latent_, layer.indexer.q, index_q_);
  Rotate(index_q_, c.index_heads, c.index_dim, /*inverse=*/false);
  ops_.RoundTrip(stream_, {int64_t{rows_->count} * c.index_heads, c.index_dim, keys.format,
                           index_q_});
  Linear(normed_, layer.indexer.head_weight, index_weight_);

  kernels::IndexSelectArgs select;
  select.rows = rows_;
  select.heads = c.index_heads;
  select.width = c.index_dim;
  select.select = c.index_topk;
  select.scale = InverseRoot(double{1} * c.index_dim * c.index_heads);
  select.q = index_q_;
  select.weight = index_weight_;
  select.keys = keys;
  select.block_entries = c.candidate_block;
  select.blocks_kept = c.candidate_blocks;
  if (l == c.candidate_source) select.candidates_out = candidates_[half_];
  if (c.candidate_source >= 0 && l > c.candidate_source) select.candidates = candidates_[half_];
  select.entries_max = c.positions_max;
  select.scratch = index_scratch_;
  select.selected = selected_[half_];
  ops_.IndexSelect(stream_, select);
  Tap("selected", l, selected_[half_]);
  if (l == c.candidate_source) Tap("candidates", l, candidates_[half_]);
}

void V41Pass::Moe(int l, const V41Layer& layer) {
  const DeepseekV41Config& c = config_;
  const V41Moe& moe = layer.moe;
  const auto limit = static_cast<float>(c.swiglu_limit);
  kernels::MoeRouteArgs route;
  route.rows = rows_->count;
  route.experts = c.experts;
  route.choices = c.experts_per_token;
  route.scale = static_cast<float>(c.routed_scale);
  route.score = kernels::RouteScore::kSqrtSoftplus;
  route.x = normed_;
  route.gate = moe.router;
  route.bias = moe.bias;
  route.image = rows_->image;
  route.image_bias = moe.image_bias;
  route.expert = expert_;
  route.weight = expert_weight_;
  ops_.MoeRoute(stream_, route);
  Tap("experts", l, expert_);

  Linear(normed_, moe.shared.gate, gate_);
  Linear(normed_, moe.shared.up, up_);
  ops_.Swiglu(stream_, {int64_t{rows_->count} * c.expert_width, gate_, up_, limit});
  Linear(gate_, moe.shared.down, block_);

  const EpBatch batch = ep_.Dispatch(stream_, {l, rows_->count, normed_, expert_});
  ops_.ExpertFfn(stream_, {batch.entries_max, c.experts_per_token, moe.experts, batch.x,
                           batch.entry, batch.slot_begin, expert_hidden_, expert_out_, limit,
                           expert_weight_});
  ep_.Combine(stream_, {rows_->count, c.hidden, expert_, Tensor(), expert_out_, block_});
}

void V41Pass::Logits(const Tensor& logits) {
  const DeepseekV41Config& c = config_;
  const int count = inputs_->sample_count();
  ops_.GatherRows(stream_, {count, c.streams * c.hidden, streams_[half_], inputs_->sample_index(),
                            sampled_streams_});
  ops_.GatherRows(stream_,
                  {count, c.streams, pre_[half_], inputs_->sample_index(), sampled_pre_});
  ops_.Collapse(stream_,
                {count, c.streams, c.hidden, sampled_streams_, sampled_pre_, sampled_});
  Norm(sampled_, setting_.weights.final_norm, c.hidden, count);
  ops_.Linear(stream_, {count, sampled_, setting_.weights.head, logits, true});
  if (tap_) tap_("logits", -1, stream_, logits, count);
}

void V41Pass::Mix(const V41Mix& mix, const Tensor& pre) {
  const DeepseekV41Config& c = config_;
  ops_.StreamMix(stream_, {rows_->count, c.streams, c.sinkhorn_iterations,
                           static_cast<float>(c.hc_epsilon), static_cast<float>(c.norm_epsilon),
                           streams_[half_], mix.fn, mix.scale, mix.base, pre, post_, comb_});
}

void V41Pass::Collapse(const Tensor& pre, const Tensor& norm) {
  const DeepseekV41Config& c = config_;
  ops_.Collapse(stream_, {rows_->count, c.streams, c.hidden, streams_[half_], pre, hidden_});
  ops_.RmsNorm(stream_, {rows_->count, c.hidden, static_cast<float>(c.norm_epsilon), hidden_,
                         c.hidden, norm, normed_});
}

void V41Pass::Expand() {
  ops_.Expand(stream_, {rows_->count, config_.streams, config_.hidden, block_, post_, comb_,
                        streams_[half_]});
}

void V41Pass::Norm(const Tensor& x, const Tensor& weight, int width, int count) {
  ops_.RmsNorm(stream_, {count, width, static_cast<float>(config_.norm_epsilon), x, width, weight,
                         x});
}

void V41Pass::Linear(const Tensor& x, const Matrix& weight, const Tensor& out) {
  ops_.Linear(stream_, {rows_->count, x, weight, out});
}

void V41Pass::Rotate(const Tensor& x, int heads, int width, bool inverse) {
  ops_.RopeQuery(stream_, {rows_, heads, width - config_.rope_dim, config_.rope_dim, frequency_, x,
                           inverse});
}

}  // namespace weir::engine
