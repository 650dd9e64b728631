// SPDX-License-Identifier: Apache-2.0
//
// HashModel: a stand-in whose next token is a hash of the KV it really read, with V4.1's kinds of
// state (hash_rules.h). A stale, missing or late page, ring row or carry changes the text, so that
// "the text equals the oracle's" checks everything around a model in microseconds per step. It
// computes on the thread that calls Launch; Collect waits out `step_delay_us`. The pages and the
// plan belong to the caller. A row whose page is absent is a bug of the core and crashes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/model/hash_rules.h"
#include "engine/model/model.h"

namespace weir::engine {

// Positive sizes, a vocabulary wide enough to draw from, a block the ratio divides.
absl::Status ValidateHashConfig(const HashConfig& config);

std::shared_ptr<const LoadedModel> MakeHashModel(const HashConfig& config);

// `config_json` is the text of the directory's config.json.
absl::StatusOr<HashConfig> ParseHashConfig(const std::string& directory,
                                           const std::string& config_json,
                                           const LoadOptions& options);
absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadHashModel(const std::string& directory,
                                                                 const std::string& config_json,
                                                                 const LoadOptions& options);

}  // namespace weir::engine
