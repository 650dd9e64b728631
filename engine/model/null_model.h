// SPDX-License-Identifier: Apache-2.0
//
// The null model: answers one constant token at once and touches no KV, so that what a step costs is
// the engine alone. It allocates nothing in a step once its lists have grown. One thread owns an
// instance; it never waits and cannot fail.
#pragma once

#include <memory>

#include "engine/model/model.h"

namespace weir::engine {

struct NullOptions {
  uint32_t vocab = 1000;
  Position positions_max = 1u << 22;
  uint32_t block_tokens = 64;
  uint32_t draft_max = 5;
  bool accept_all = true;  // else every draft is rejected
  TokenId token = 1;
};

std::shared_ptr<const LoadedModel> MakeNullModel(const NullOptions& options);

// A checkpoint directory of model_type "weir_null"; its fields are those of NullOptions.
absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadNullModel(const std::string& directory,
                                                                 const std::string& config_json,
                                                                 const LoadOptions& options);

}  // namespace weir::engine
