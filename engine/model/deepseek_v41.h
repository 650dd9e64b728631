// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek V4.1, text: a causal encoder whose last layer makes the global KV that all decoder layers
// read, sliding windows everywhere, two-level selection, n-gram tables and mixed residual streams
// (v41-spec). Rows before their sequence's tail_start run the encoder alone. Loading blocks on the
// disk and names file, field or tensor at fault. Models made from one LoadedModel share its weights;
// each is driven by one step thread.
//
// Besides config.json and the tensors it reads tokenizer.json, from which the compressed ids of the
// n-gram hash follow.
#pragma once

#include <memory>
#include <string>

#include "engine/model/model.h"
#include "engine/model/text_model_options.h"

namespace weir::engine {

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV41(const std::string& directory,
                                                                   const std::string& config_json,
                                                                   const LoadOptions& options);
absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV41With(
    const std::string& directory, const std::string& config_json, const LoadOptions& options,
    TextModelOptions more);

}  // namespace weir::engine
