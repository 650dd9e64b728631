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

}  // namespace

uint8_t E4m3Code(double value) {
  static const std::array<double, kCodes> kMagnitudes = MakeMagnitudes();
  const double magnitude = std::min(std::abs(value), kMagnitudes.back());
  const auto above = std::lower_bound(kMagnitudes.begin(), kMagnitudes.end(), magnitude);
  auto code = static_cast<int>(above - kMagnitudes.begin());
  if (code > 0) {
    const double up = *above - magnitude;
    const double down = magnitude - *(above - 1);
    if (down < up || (down == up && code % 2 == 1)) --code;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

uint16_t Bf16Code(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace weir::tools
