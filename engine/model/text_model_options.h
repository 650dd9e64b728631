// SPDX-License-Identifier: Apache-2.0
//
// TextModelOptions: how a checkpoint's forward pass runs, beyond what every model is asked: on which
// backend, where experts lie, who looks on. Plain values for loaders, tests and traces.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/stdx/status.h"
#include "engine/ep/ep_comm.h"
#include "engine/model/model.h"
#include "kernels/op/backend.h"

namespace weir::engine {

// Sees a tensor between two operations of a pass, for tests and traces; reads through the stream.
//   layer -1:   "positions" I32 [rows], of the rows that the tensors after it are about;
//               "logits" F32 [samples, vocab]
//   each layer: "experts" I32 [rows, choices]; "layer" F32 [rows, residual width]; and where they
//               exist "selected" and "candidates" I32 [rows, at most], "engram" I32 [rows, columns]
using TensorTap = std::function<void(std::string_view what, int layer, kernels::Stream& stream,
                                     const kernels::Tensor& tensor, int rows)>;

struct TextModelOptions {
  std::shared_ptr<kernels::Backend> backend;  // null: the family's default
  ExpertMap experts;                          // empty: expert e in slot e
  TensorTap tap;
  int rows_per_pass = 128;
};

// LoadOptions::numerics as a value; an error names the field.
absl::StatusOr<kernels::Numerics> NumericsOf(const LoadOptions& options);

}  // namespace weir::engine
