// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek V2, V3, R1 and V3.2: multi-head latent attention and mixture of experts (model-spec 2, 3).
// A block store holds, per layer and token, the normed latent and the rotated key, and V3.2's another
// the index key; there are no windows, no carry and no encoder part. Loading blocks on the disk and
// names file, field or tensor at fault. Models made from one LoadedModel share its weights; each is
// driven by one step thread.
#pragma once

#include <memory>
#include <string>

#include "engine/model/model.h"
#include "engine/model/text_model_options.h"

namespace weir::engine {

// The directory's config.json is given as text, so that whoever chose the family need not be asked
// again.
absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV3(const std::string& directory,
                                                                  const std::string& config_json,
                                                                  const LoadOptions& options);
absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadDeepseekV3With(
    const std::string& directory, const std::string& config_json, const LoadOptions& options,
    TextModelOptions more);

}  // namespace weir::engine
