// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek V3 and R1: multi-head latent attention and mixture of experts (model-spec 2). One block
// store holds, per layer and token, the normed latent and the rotated key; there are no windows, no
// carry and no encoder part. Loading blocks on the disk and names file, field or tensor at fault.
// Models made from one LoadedModel share its weights; each is driven by one step thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/ep/ep_comm.h"
#include "engine/model/model.h"
#include "kernels/op/ops.h"

namespace weir::engine {

// Sees a tensor between two operations of a pass: "experts" (I32 [rows, choices]) and "layer"
// (F32 [rows, hidden]) per layer, "positions" (I32 [rows]) and "logits" (F32 [samples, vocab]) per
// pass with layer -1. For tests and traces; reads through the stream.
using TensorTap = std::function<void(std::string_view what, int layer, kernels::Stream& stream,
                                     const kernels::Tensor& tensor, int rows)>;

struct DeepseekV3Options {
  std::shared_ptr<kernels::Backend> backend;  // null: the reference backend
  ExpertMap experts;                          // empty: expert e in slot e
  TensorTap tap;
  int rows_per_pass = 128;
};

// The directory's config.json is given as text, so that whoever chose the family need not be asked
// again.
absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV3(const std::string& directory,
                                                                  const std::string& config_json,
                                                                  const LoadOptions& options);
absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV3With(
    const std::string& directory, const std::string& config_json, const LoadOptions& options,
    DeepseekV3Options more);

}  // namespace weir::engine
