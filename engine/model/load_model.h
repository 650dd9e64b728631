// SPDX-License-Identifier: Apache-2.0
//
// The one door to every model family: opens a checkpoint directory, choosing by `model_type` of its
// config.json ("deepseek_v3", "weir_hash", ...). Called at start, may block
// on the disk. Errors: kBadField naming file and field; kUnknownModel for a type this build lacks.
#pragma once

#include <memory>
#include <string>

#include "engine/model/model.h"

namespace weir::engine {

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadModel(const std::string& directory,
                                                             const LoadOptions& options);

}  // namespace weir::engine
