// SPDX-License-Identifier: Apache-2.0
//
// Writes a tensor the way its family's release stores it: plain, FP8 or packed FP4 with E8M0
// scales, or FP8 with F32 scales. Pure.
#pragma once

#include <vector>

#include "engine/checkpoint/expected_tensors.h"
#include "tools/make_checkpoint/safetensors_writer.h"

namespace weir::tools {

// `values` are row-major, as many as tensor.values().
void AddReleased(const engine::ExpectedTensor& tensor, const std::vector<float>& values,
                 SafetensorsWriter* out);

}  // namespace weir::tools
