// SPDX-License-Identifier: Apache-2.0
//
// A small DeepSeek V4.1 checkpoint from a seed, in the released layout: every kind of layer, the
// n-gram tables, the drafter and the vision tower, real names and formats, window 128 and 16,384
// positions. Weights are random; the answer's text means nothing but is varied, printable and ends.
// Blocks on the disk; errors name the file or option at fault.
#pragma once

#include <cstdint>
#include <string>

#include "base/stdx/status.h"

namespace weir::tools {

struct TinyV41Options {
  std::string out;        // directory; made if absent
  std::string tokenizer;  // tokenizer.json, copied; sizes the vocabulary
  uint64_t seed = 1;
  int hidden = 128;
  int experts = 8;
  int positions_max = 16384;
};

absl::Status MakeTinyV41(const TinyV41Options& options);

}  // namespace weir::tools
