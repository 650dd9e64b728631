// SPDX-License-Identifier: Apache-2.0
//
// Tensors that layers of V4 and V4.1 share, for the lists of this folder only. Pure.
#pragma once

#include <string>

#include "engine/checkpoint/deepseek_v4_config.h"
#include "engine/checkpoint/tensor_list.h"

namespace weir::engine {

// Norms, stream mixing and window attention of the layer `<prefix>`.
void AddV4Block(const DeepseekV4Shape& shape, const std::string& prefix, TensorList* list);
// Routed and shared experts of the feed-forward `<prefix>`.
void AddV4Experts(const DeepseekV4Shape& shape, const std::string& prefix, int experts,
                  TensorList* list);

}  // namespace weir::engine
