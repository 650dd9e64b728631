// SPDX-License-Identifier: Apache-2.0
//
// Which pairs of neighbouring characters no token spans, so that BPE cannot merge across the border
// between them, whatever stands around. Asked for characters of three bytes (Chinese, Japanese,
// Korean and many others), where most borders between tokens are such. Immutable after Build, any
// thread; 72 KiB, made to stay in a processor's own cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/stdx/bytes.h"

namespace weir::codec {

class Junctions {
 public:
  static Junctions Build(const std::vector<std::string_view>& tokens);

  // True if nothing can be merged across `at`, which lies between two tokens of a piece. False
  // where that cannot be told so quickly.
  bool NeverSpanned(const char* begin, const char* at, const char* end) const {
    if (at - begin < 3 || end - at < 3) return false;
    const uint32_t left = ThreeBytes(at - 3);
    const uint32_t right = ThreeBytes(at);
    if (!IsThreeByteChar(left) || !IsThreeByteChar(right)) return false;
    const size_t pair = HashOf(left, right);
    const size_t bytes = (left >> 16) << 8 | (right & 0xFF);
    return ((pairs_[pair / 64] >> (pair % 64)) & 1) == 0 &&
           ((partial_[bytes / 64] >> (bytes % 64)) & 1) == 0;
  }

 private:
  static constexpr int kPairBits = 19;

  static uint32_t ThreeBytes(const char* p) {
    return uint32_t{LoadAs<uint16_t>(p)} | uint32_t{static_cast<uint8_t>(p[2])} << 16;
  }
  static bool IsThreeByteLead(char byte) { return (static_cast<uint8_t>(byte) & 0xF0) == 0xE0; }
  static bool IsThreeByteChar(uint32_t bytes) { return (bytes & 0xC0C0F0) == 0x8080E0; }
  static size_t HashOf(uint32_t left, uint32_t right) {
    return ((uint64_t{left} << 24 | right) * 0x9E3779B97F4A7C15ULL) >> (64 - kPairBits);
  }

  std::vector<uint64_t> pairs_;    // bits: characters that some token has side by side
  std::vector<uint64_t> partial_;  // bits by last and first byte: some token spans part of either
};

}  // namespace weir::codec
