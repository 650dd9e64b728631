// SPDX-License-Identifier: Apache-2.0
//
// Random weights for any V3 or V4.1 configuration, in the released form. Every number comes from
// integers alone, so that a seed gives the same bytes on every machine and outside truth can be
// kept for it. A tokenizer is the caller's business. Blocks on the disk; errors name the field or
// file at fault.
#pragma once

#include <cstdint>
#include <string>

#include "base/stdx/status.h"

namespace weir::tools {

// Writes config.json and model.safetensors.
absl::Status MakeRandomCheckpoint(const std::string& config_file, const std::string& out,
                                  uint64_t seed);

}  // namespace weir::tools
