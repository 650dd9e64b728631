// SPDX-License-Identifier: Apache-2.0
//
// What config.json of a DeepSeek V4.1 checkpoint says. Every field is checked for presence and
// range, and fields that speak of the same thing must agree: layer lists with layer ratios, table
// rows with their primes, group sizes with the storage formats. Pure; errors are kBadField and name
// the field by its path ("text_config.compress_ratios").
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"
#include "base/stdx/status.h"
#include "engine/checkpoint/deepseek_v4_config.h"

namespace weir::engine {

// Tables of n-gram rows that are mixed in before some layers.
struct EngramConfig {
  std::vector<int> layers;    // engram_layer_ids, ascending
  std::vector<int64_t> rows;  // engram_num_embeddings, of each such layer
  // Each layer's moduli, order 2 first, heads inside an order; their sum is `rows`.
  std::vector<std::vector<int64_t>> primes;
  int orders = 0;  // n-grams of 2 .. orders + 1 tokens (engram_max_ngram_size - 1)
  int heads = 0;
  int head_dim = 0;
  TokenId pad_token = 0;
  int compressed_vocab = 0;

  bool empty() const { return layers.empty(); }
  // Width of the rows that one token looks up, side by side.
  int64_t width() const { return int64_t{orders} * heads * head_dim; }
};

struct DraftConfig {
  int stages = 0;  // num_nextn_predict_layers; 0: no drafter
  int block = 0;   // dspark_block_size: tokens drafted at once
  TokenId noise_token = 0;
  std::vector<int> target_layers;  // whose input streams the drafter reads
  int markov_rank = 0;
  int experts = 0;
  int experts_per_token = 0;
};

struct VisionConfig {
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int width = 0;  // intermediate_size
  int patch = 0;
  double rope_theta = 0;
  int downsample = 0;
  int tokens_max = 0;
  int pixels_min = 0;
  std::optional<double> aspect_max;  // max_wh_ratio
  TokenId image_token = 0;
};

struct DeepseekV41Config : DeepseekV4Shape {
  std::vector<int> kv_sources;
  std::vector<int> index_sources;
  int candidate_source = -1;  // -1: later index sources search all rows
  int candidate_blocks = 0;
  int candidate_block = 0;
  EngramConfig engram;
  DraftConfig draft;
  std::optional<VisionConfig> vision;

  bool is_kv_source(int layer) const;
  bool is_index_source(int layer) const;
  // The nearest source at or before `layer`; -1 for a layer that reads its window only.
  int kv_source(int layer) const;
  int index_source(int layer) const;
};

absl::StatusOr<DeepseekV41Config> ParseDeepseekV41Config(std::string_view json);

}  // namespace weir::engine
