// SPDX-License-Identifier: Apache-2.0
#include "tools/make_checkpoint/fp8_codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace weir::tools {
namespace {

constexpr int kCodes = 127;  // 0x00 to 0x7e; 0x7f is NaN

std::array<double, kCodes> MakeMagnitudes() {
  std::array<double, kCodes> values{};
  for (int code = 0; code < kCodes; ++code) {
    const int exponent = code >> 3;
    const double mantissa = (code & 7) / 8.0;
    values[static_cast<size_t>(code)] =
        exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1.0 + mantissa, exponent - 7);
  }
  return values;
}

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

uint8_t E4m3Code(double value) {
  static const std::array<double, kCodes> kMagnitudes = MakeMagnitudes();
  return static_cast<uint8_t>(NearestCode(kMagnitudes, value) | (std::signbit(value) ? 0x80 : 0));
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
