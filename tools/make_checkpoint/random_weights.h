// SPDX-License-Identifier: Apache-2.0
//
// What the small checkpoints share: numbers drawn by seed and tensor name, and the bias that keeps
// random text printable. Hidden channel 0 is a constant: every embedding has it, no layer writes to
// it, and the head reads it as a bias of each token. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stdx/ids.h"
#include "codec/token/vocab.h"

namespace weir::tools {

inline constexpr float kConstantChannel = 4.0f;

class Generator {
 public:
  Generator(uint64_t seed, const std::string& name);

  // Standard normal.
  float Next();
  std::vector<float> Draw(int64_t count, float mean, float deviation);

 private:
  const uint64_t seed_;
  const uint64_t stream_;
  uint64_t index_ = 0;
};

// In units of logits: words are likelier than letters, control tokens do not come, the end does.
float BiasOf(const codec::Vocab& vocab, TokenId token);

}  // namespace weir::tools
