// SPDX-License-Identifier: Apache-2.0
#include "tools/make_checkpoint/fp8_codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace weir::tools {
namespace {

// Index of the nearest of ascending magnitudes, ties to the even index.
template <size_t kCount>
int NearestCode(const std::array<double, kCount>& magnitudes, double value) {
  const double magnitude = std::min(std::abs(value), magnitudes.back());
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  auto code = static_cast<int>(above - magnitudes.begin());
  if (code > 0) {
    const double up = *above - magnitude;
    const double down = magnitude - *(above - 1);
    if (down < up || (down == up && code % 2 == 1)) --code;
  }
  return code;
}

}  // namespace

// Codes of one exponent are evenly spaced, and follow those of the exponent below.
uint8_t E4m3Code(double value) {
  constexpr double kMost = 448;
  constexpr int kLowestExponent = -6;
  const double magnitude = std::min(std::abs(value), kMost);
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude lies in [2^(exponent - 1), 2^exponent)
  const int above = magnitude == 0 ? 0 : std::max(exponent - 1 - kLowestExponent, 0);
  const double eighths = std::nearbyint(std::ldexp(magnitude, 3 - kLowestExponent - above));
  const int code = above * 8 + static_cast<int>(eighths);
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

uint8_t E2m1Code(double value) {
  static constexpr std::array<double, 8> kMagnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return static_cast<uint8_t>(NearestCode(kMagnitudes, value) | (std::signbit(value) ? 0x8 : 0));
}

uint8_t E8m0Code(double value, double largest) {
  int exponent = 0;
  const double mantissa = std::frexp(std::max(value / largest, 1e-30), &exponent);
  return static_cast<uint8_t>((mantissa == 0.5 ? exponent - 1 : exponent) + 127);
}

uint16_t Bf16Code(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace weir::tools
