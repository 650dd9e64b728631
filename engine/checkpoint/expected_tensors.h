// SPDX-License-Identifier: Apache-2.0
//
// Which tensors a family needs, and the check of a checkpoint against that list before anything
// uses it. Pure. Errors name the tensor: missing, of a wrong shape or dtype, or FP8 without its
// scales.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stdx/status.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/weights.h"
#include "kernels/op/tensor.h"

namespace weir::engine {

enum class TensorUse : uint8_t {
  kVector = 0,  // F32 or BF16: norms, biases
  kTable = 1,   // F32 or BF16, looked up by row
  kMatrix = 2,  // F32, BF16, or F8_E4M3 with `<name>_scale_inv` in F32, one per block
};

struct ExpectedTensor {
  std::string name;
  TensorUse use = TensorUse::kMatrix;
  std::vector<int64_t> shape;
};

// One linear map's tensor names are `<prefix>.weight` and `<prefix>.weight_scale_inv`.
std::vector<ExpectedTensor> DeepseekV3Tensors(const DeepseekV3Config& config);

struct TensorBlock {
  int64_t rows = 0;
  int64_t cols = 0;
};

// Returns how many tensors of the checkpoint the list does not use.
absl::StatusOr<size_t> CheckTensors(const Weights& weights,
                                    const std::vector<ExpectedTensor>& expected, TensorBlock block);

// The stored form of a checked matrix.
kernels::HostMatrix HostMatrixOf(const Weights& weights, const std::string& name,
                                 TensorBlock block);

}  // namespace weir::engine
