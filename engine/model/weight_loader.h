// SPDX-License-Identifier: Apache-2.0
//
// WeightLoader: moves checked tensors of a checkpoint to a backend. Used by one thread while a model
// is loaded; what it makes belongs to the arena, whose status tells whether there was memory. A
// tensor that the checkpoint lacks is a bug: the list of expected tensors was checked before.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/expected_tensors.h"
#include "engine/checkpoint/weights.h"
#include "engine/model/device_arena.h"

namespace weir::engine {

class WeightLoader {
 public:
  // `block`: values that share a scale in an FP8 weight.
  WeightLoader(const Weights& checkpoint, TensorBlock block, kernels::Backend* backend,
               DeviceArena* arena);

  // `<prefix>.weight`.
  kernels::Matrix Linear(const std::string& prefix) { return Matrix(prefix + ".weight"); }
  kernels::Matrix Matrix(const std::string& name);
  // `<prefix>.weight` of MLA's kv_b: of each head's rows, `transposed` and then `plain`.
  kernels::Matrix LinearByHead(const std::string& prefix, int transposed, int plain);
  // Small and always F32: norms, biases, scales. One dimension, or two as stored.
  kernels::Tensor Floats(const std::string& name);
  // As stored, F32 or BF16 rows that are looked up.
  kernels::Tensor Rows(const std::string& name);

  kernels::Tensor Copy(const std::vector<float>& values);
  kernels::Tensor Copy(const std::vector<int32_t>& values);
  kernels::Tensor Copy(const std::vector<int64_t>& values);

 private:
  void CopyIn(const kernels::Tensor& to, const void* from, size_t bytes);

  const Weights& checkpoint_;
  const TensorBlock block_;
  const std::unique_ptr<kernels::Stream> stream_;
  DeviceArena* const arena_;
};

}  // namespace weir::engine
