// SPDX-License-Identifier: Apache-2.0
//
// The tensor list of every family, as its releases store it: names, shapes, formats. V3's is that
// of V2 and V3.2 as well. Pure.
#pragma once

#include <vector>

#include "engine/checkpoint/deepseek_v41_config.h"
#include "engine/checkpoint/expected_tensors.h"
#include "engine/checkpoint/model_config.h"

namespace weir::engine {

std::vector<ExpectedTensor> DeepseekV3Tensors(const DeepseekV3Config& config);
std::vector<ExpectedTensor> DeepseekV4Tensors(const DeepseekV4Config& config);
std::vector<ExpectedTensor> DeepseekV41Tensors(const DeepseekV41Config& config);

}  // namespace weir::engine
