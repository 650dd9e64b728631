// SPDX-License-Identifier: Apache-2.0
//
// A small DeepSeek V3 checkpoint from a seed, in the released layout: real tensor names, FP8
// weights with block scales, BF16 norms and embeddings, and a vocabulary sized to a given
// tokenizer. Weights are random; the answer's text means nothing but is varied, printable and ends.
// Blocks on the disk; errors name the file or option at fault.
#pragma once

#include <cstdint>
#include <string>

#include "base/stdx/status.h"

namespace weir::tools {

struct TinyV3Options {
  std::string out;        // directory; made if absent
  std::string tokenizer;  // tokenizer.json, copied
  uint64_t seed = 1;
  int hidden = 128;
  int layers = 3;
  int experts = 8;
  int positions_max = 8192;
};

absl::Status MakeTinyV3(const TinyV3Options& options);

}  // namespace weir::tools
