// SPDX-License-Identifier: Apache-2.0
//
// The number formats of the tensor cores as the host sees them: 16-bit and 8-bit codes to F32 and
// back, rounding to nearest even, saturating where the hardware's conversions do. Pure.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace weir::kernels::simt {

inline float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // the hardware's NaN
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float FromF16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  float size = exponent == 0    ? std::ldexp(static_cast<float>(mantissa), -24)
               : exponent == 31 ? (mantissa == 0 ? HUGE_VALF : std::nanf(""))
                                : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

inline uint16_t ToF16(float value) {
  const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7fff;
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size < 0x1p-14f) {
    return sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24f));
  }
  auto code = std::bit_cast<uint32_t>(size);
  code = (code + 0xfff + (code >> 13 & 1)) >> 13;
  return sign | static_cast<uint16_t>(code - ((127 - 15) << 10));
}

inline float FromE4m3(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if ((code & 127) == 127) return std::nanf("");
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 128) != 0 ? -size : size;
}

// Saturating, as cvt.satfinite.
inline uint8_t ToE4m3(float value) {
  const auto sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 24 & 0x80);
  if (std::isnan(value)) return 0x7f;
  const float size = std::fmin(std::fabs(value), 448.0f);
  if (size < 0x1p-6f) return sign | static_cast<uint8_t>(std::nearbyint(size * 0x1p9f));
  auto code = std::bit_cast<uint32_t>(size);
  code = (code + 0x7ffff + (code >> 20 & 1)) >> 20;
  return sign | static_cast<uint8_t>(code - ((127 - 7) << 3));
}

}  // namespace weir::kernels::simt
