// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v41_weights.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/deepseek_tensors.h"
#include "engine/model/engram_hash.h"
#include "engine/model/weight_loader.h"
#include "kernels/op/rope.h"

namespace weir::engine {
namespace {

constexpr int64_t kTableGroup = 32;  // values of an Engram row that share a scale

V41Mix LoadMix(const std::string& prefix, WeightLoader* load) {
  return {load->Matrix(prefix + "_fn"), load->Floats(prefix + "_base"),
          load->Floats(prefix + "_scale")};
}

V41Attention LoadAttention(const std::string& p, WeightLoader* load) {
  V41Attention attention;
  attention.q_a = load->Linear(p + "wq_a");
  attention.q_norm = load->Floats(p + "q_norm.weight");
  attention.q_b = load->Linear(p + "wq_b");
  attention.kv = load->Linear(p + "wkv");
  attention.kv_norm = load->Floats(p + "kv_norm.weight");
  attention.sink = load->Floats(p + "attn_sink");
  attention.o_a = load->Linear(p + "wo_a");
  attention.o_b = load->Linear(p + "wo_b");
  return attention;
}

V41Compressor LoadCompressor(const std::string& p, int ratio, WeightLoader* load) {
  V41Compressor compressor;
  compressor.kv = load->Linear(p + "compressor.wkv");
  if (ratio > 1) compressor.gate = load->Linear(p + "compressor.wgate");
  compressor.norm = load->Floats(p + "compressor.norm.weight");
  compressor.index_key = load->Linear(p + "indexer.wk");
  compressor.index_key_norm = load->Floats(p + "indexer.k_norm.weight");
  return compressor;
}

kernels::ExpertWeights LoadExpert(const std::string& p, WeightLoader* load) {
  return {load->Linear(p + "w1"), load->Linear(p + "w3"), load->Linear(p + "w2")};
}

V41Moe LoadMoe(const std::string& p, const std::vector<int32_t>& slot_of, WeightLoader* load) {
  V41Moe moe;
  moe.router = load->Linear(p + "gate");
  moe.bias = load->Floats(p + "gate.bias");
  moe.image_bias = load->Floats(p + "gate.bias_vl");
  moe.experts.resize(slot_of.size());
  for (size_t e = 0; e < slot_of.size(); ++e) {
    moe.experts[static_cast<size_t>(slot_of[e])] =
        LoadExpert(absl::StrCat(p, "experts.", e, "."), load);
  }
  moe.shared = LoadExpert(p + "shared_experts.", load);
  return moe;
}

// The hash constants in column order; a column's rows start where the columns before it end.
void LoadHash(const EngramConfig& c, size_t index, WeightLoader* load, V41Engram* engram) {
  std::vector<int32_t> primes;
  std::vector<int32_t> offsets;
  int32_t offset = 0;
  for (const int64_t prime : c.primes[index]) {
    primes.push_back(static_cast<int32_t>(prime));
    offsets.push_back(offset);
    offset += primes.back();
  }
  engram->prime = load->Copy(primes);
  engram->offset = load->Copy(offsets);
  engram->multiplier =
      load->Copy(EngramMultipliers(c.layers[index], c.orders + 1, c.compressed_vocab));
}

absl::StatusOr<V41Engram> LoadEngram(const EngramConfig& c, size_t index, const std::string& p,
                                     const Weights& checkpoint, kernels::Backend* backend,
                                     WeightLoader* load) {
  V41Engram engram;
  WEIR_ASSIGN(engram.table, backend->MapTable(HostMatrixOf(checkpoint, p + "embed.weight",
                                                           {1, kTableGroup})));
  engram.kv = load->Linear(p + "wkv");
  engram.q_weight = load->Floats(p + "q_weight");
  engram.k_weight = load->Floats(p + "k_weight");
  LoadHash(c, index, load, &engram);
  return engram;
}

std::optional<kernels::Yarn> YarnOf(const DeepseekV41Config& c) {
  if (!c.yarn) return std::nullopt;
  return kernels::Yarn{c.yarn->factor, c.yarn->original_positions, c.yarn->beta_fast,
                       c.yarn->beta_slow};
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeepseekV41Weights>> DeepseekV41Weights::Load(
    const DeepseekV41Config& c, std::unique_ptr<Weights> checkpoint,
    const std::vector<int32_t>& token_map, const ExpertMap& map, kernels::Backend* backend) {
  const std::vector<ExpectedTensor> expected = DeepseekV41Tensors(c);
  WEIR_TRY(CheckTensors(*checkpoint, expected));
  WEIR_TRY(CheckScales(*checkpoint, expected));
  std::unique_ptr<DeepseekV41Weights> weights(
      new DeepseekV41Weights(std::move(checkpoint), backend));
  const Weights& source = *weights->checkpoint_;

  WeightLoader load(source, {c.block_rows, c.block_cols}, backend, &weights->arena_);
  weights->embedding = load.Rows("embed.weight");
  weights->final_norm = load.Floats("norm.weight");
  weights->head = load.Linear("head");
  weights->frequency =
      load.Copy(kernels::RopeFrequencies(c.rope_dim, c.rope_theta, std::nullopt));
  weights->compressed_frequency =
      load.Copy(kernels::RopeFrequencies(c.rope_dim, c.compress_rope_theta, YarnOf(c)));
  if (!token_map.empty()) weights->token_map = load.Copy(token_map);
  for (int l = 0; l < c.layers; ++l) {
    const std::string p = absl::StrCat("layers.", l, ".");
    V41Layer& layer = weights->layers.emplace_back();
    layer.attention_norm = load.Floats(p + "attn_norm.weight");
    layer.moe_norm = load.Floats(p + "ffn_norm.weight");
    layer.attention_mix = LoadMix(p + "hc_attn", &load);
    layer.moe_mix = LoadMix(p + "hc_ffn", &load);
    layer.attention = LoadAttention(p + "attn.", &load);
    if (c.is_kv_source(l)) {
      layer.compressor =
          LoadCompressor(p + "attn.", c.ratios[static_cast<size_t>(l)], &load);
    }
    if (c.is_index_source(l)) {
      layer.indexer.q = load.Linear(p + "attn.indexer.wq_b");
      layer.indexer.head_weight = load.Linear(p + "attn.indexer.weights_proj");
    }
    layer.moe = LoadMoe(p + "ffn.", map.slot_of[static_cast<size_t>(l)], &load);
    const auto engram = std::find(c.engram.layers.begin(), c.engram.layers.end(), l);
    if (engram != c.engram.layers.end()) {
      const auto index = static_cast<size_t>(engram - c.engram.layers.begin());
      WEIR_ASSIGN(layer.engram,
                  LoadEngram(c.engram, index, p + "engram.", source, backend, &load));
    }
    WEIR_TRY(weights->arena_.status());
    source.ReleasePages();  // the backend has its own copy
  }
  return weights;
}

}  // namespace weir::engine
