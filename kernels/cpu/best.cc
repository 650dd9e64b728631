// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/best.h"

#include <bit>

namespace weir::kernels::cpu {
namespace {

constexpr int kDigits = 3;
constexpr int kShift[kDigits] = {21, 10, 0};
constexpr int kBits[kDigits] = {11, 11, 10};

// Grows with the number.
uint32_t KeyOf(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes 0
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

// The least key that is kept and how many of those that have it.
struct Threshold {
  uint32_t key = 0;
  int64_t equals = 0;
};

// Digit by digit from the top: how many numbers have each digit, among those that agree so far.
Threshold FindThreshold(const float* score, int64_t count, int64_t keep) {
  Threshold found{0, keep};
  uint32_t mask = 0;
  for (int digit = 0; digit < kDigits; ++digit) {
    int32_t having[1 << 11] = {};
    const uint32_t last = (1u << kBits[digit]) - 1;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t key = KeyOf(score[i]);
      if ((key & mask) == found.key) ++having[key >> kShift[digit] & last];
    }
    uint32_t value = last;
    for (; having[value] < found.equals; --value) found.equals -= having[value];
    found.key |= value << kShift[digit];
    mask |= last << kShift[digit];
  }
  return found;
}

}  // namespace

int64_t KeepBest(const float* score, int64_t count, int64_t keep, int32_t* out) {
  if (count <= keep) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(i);
    return count;
  }
  Threshold threshold = FindThreshold(score, count, keep);
  int64_t kept = 0;
  for (int64_t i = 0; kept < keep; ++i) {
    const uint32_t key = KeyOf(score[i]);
    if (key < threshold.key || (key == threshold.key && threshold.equals-- <= 0)) continue;
    out[kept++] = static_cast<int32_t>(i);
  }
  return kept;
}

}  // namespace weir::kernels::cpu
