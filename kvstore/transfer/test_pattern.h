// SPDX-License-Identifier: Apache-2.0
//
// Bytes that both ends of a test know: a function of a seed and the offset. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/stdx/random.h"

namespace weir::kv {

inline uint64_t PatternWord(uint64_t seed, uint64_t index) {
  return Mix64(seed * 0x9e3779b97f4a7c15ULL + index);
}

inline std::byte PatternAt(uint64_t seed, uint64_t offset) {
  return static_cast<std::byte>(PatternWord(seed, offset / 8) >> (offset % 8 * 8));
}

// `memory` starts at offset 0.
inline void FillPattern(uint64_t seed, std::span<std::byte> memory) {
  for (uint64_t at = 0; at < memory.size(); at += 8) {
    const uint64_t word = PatternWord(seed, at / 8);
    std::memcpy(memory.data() + at, &word, memory.size() - at < 8 ? memory.size() - at : 8);
  }
}

inline bool HasPattern(uint64_t seed, uint64_t offset, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != PatternAt(seed, offset + i)) return false;
  }
  return true;
}

}  // namespace weir::kv
