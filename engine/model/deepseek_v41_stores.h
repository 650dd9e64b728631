// SPDX-License-Identifier: Apache-2.0
//
// What V4.1 keeps of a sequence (v41-spec 9): one block store of compressed rows and one of index
// keys per KV source, rings of window rows for every layer, and what a step leaves to the next: the
// unpooled half of a pair and the latest compressed token ids. The last source's stores are the
// decoder part, because the layers after it read nothing else. Pure; a plain value afterwards.
#pragma once

#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/checkpoint/deepseek_v41_config.h"
#include "kernels/op/formats.h"

namespace weir::engine {

struct V41Stores {
  CacheLayout layout;
  std::vector<kernels::RowFormat> formats;  // by store number
  // Store numbers; -1 for what the configuration lacks.
  std::vector<int> rows, keys;  // by place among the KV sources
  int encoder_window = -1;      // of layers up to the last KV source
  int decoder_window = -1;
  int pair_values = -1;  // of sources of ratio 2, in their order
  int pair_gates = -1;
  int history = -1;
  int encoder_layers = 0;
};

// `quantised`: rows as the model was trained with; otherwise everything in F32, for comparison.
V41Stores MakeV41Stores(const DeepseekV41Config& config, uint32_t block_tokens, bool quantised);

}  // namespace weir::engine
