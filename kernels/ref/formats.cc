// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"

namespace weir::kernels::ref {
namespace {

constexpr float kE4m3Max = 448;
constexpr float kE4m3LeastNormal = 0x1p-6f;
constexpr float kE4m3Step = 0x1p-9f;  // between subnormals
constexpr float kE2m1Max = 6;
constexpr float kFp8AmaxFloor = 1e-4f;
constexpr float kFp4AmaxFloor = 6 * 0x1p-126f;       // E8M0 scales
constexpr float kFp4AmaxFloorE4m3 = 6 * 0x1p-9f;     // E4M3 scales
constexpr std::array<float, 8> kE2m1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    double value = exponent == 0 ? std::ldexp(mantissa / 8.0, -6)
                                 : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
    if ((code & 127) == 127) value = std::nan("");
    table[static_cast<size_t>(code)] = static_cast<float>((code & 128) != 0 ? -value : value);
  }
  return table;
}

float LargestOf(const float* x, int64_t count, float floor) {
  for (int64_t i = 0; i < count; ++i) floor = std::max(floor, std::fabs(x[i]));
  return floor;
}

float ClampTo(float value, float limit) { return std::clamp(value, -limit, limit); }

void PackNibbles(const float* x, int count, float scale, std::byte* to) {
  for (int i = 0; i < count; i += 2) {
    const unsigned low = FloatToE2m1(x[i] / scale);
    const unsigned high = FloatToE2m1(x[i + 1] / scale);
    to[i / 2] = static_cast<std::byte>(low | high << 4);
  }
}

void UnpackNibbles(const std::byte* from, int count, float scale, float* x) {
  for (int i = 0; i < count; i += 2) {
    const auto pair = static_cast<unsigned>(from[i / 2]);
    x[i] = E2m1ToFloat(pair & 15) * scale;
    x[i + 1] = E2m1ToFloat(pair >> 4) * scale;
  }
}

// `block` 32 with E8M0 scales, or 128 with the same scales as F32.
void EncodeFp8(const float* x, int width, int block, std::byte* to) {
  for (int b = 0; b < width / block; ++b) {
    const float amax = LargestOf(x + b * block, block, kFp8AmaxFloor);
    const uint8_t byte = E8m0CeilOf(amax * (1.0f / kE4m3Max));
    const float scale = E8m0ToFloat(byte);
    for (int i = b * block; i < (b + 1) * block; ++i) {
      to[i] = static_cast<std::byte>(FloatToF8E4m3(x[i] / scale));
    }
    if (block == 32) {
      to[width + b] = static_cast<std::byte>(byte);
    } else {
      std::memcpy(to + width + b * 4, &scale, sizeof(scale));
    }
  }
}

// `block` 32 with E8M0 scales, or 16 with E4M3 scales.
void EncodeFp4(const float* x, int width, int block, std::byte* to) {
  for (int b = 0; b < width / block; ++b) {
    const float* group = x + b * block;
    uint8_t byte = 0;
    float scale = 0;
    if (block == 32) {
      byte = E8m0CeilOf(LargestOf(group, block, kFp4AmaxFloor) * (1.0f / kE2m1Max));
      scale = E8m0ToFloat(byte);
    } else {
      byte = FloatToF8E4m3(LargestOf(group, block, kFp4AmaxFloorE4m3) / kE2m1Max);
      scale = F8E4m3ToFloat(byte);
    }
    PackNibbles(group, block, scale, to + b * block / 2);
    to[width / 2 + b] = static_cast<std::byte>(byte);
  }
}

}  // namespace

float F8E4m3ToFloat(uint8_t code) {
  static const std::array<float, 256> kTable = MakeE4m3Table();
  return kTable[code];
}

uint8_t FloatToF8E4m3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const float size = std::min(std::fabs(value), kE4m3Max);
  if (std::isnan(value)) return sign | 0x7f;
  if (size < kE4m3LeastNormal) {
    return sign | static_cast<uint8_t>(std::nearbyint(size / kE4m3Step));
  }
  auto code = std::bit_cast<uint32_t>(size);
  code = (code + 0x7ffff + (code >> 20 & 1)) >> 20;  // three bits of mantissa, ties to even
  return sign | static_cast<uint8_t>(code - ((127 - 7) << 3));
}

float E8m0ToFloat(uint8_t byte) {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  if (byte == 0) return 0x1p-127f;  // below the normal range
  return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23);
}

uint8_t E8m0CeilOf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23 & 255) + ((bits & 0x7fffff) != 0 ? 1 : 0);
  return static_cast<uint8_t>(std::min<uint32_t>(exponent, 254));
}

float E2m1ToFloat(unsigned nibble) {
  const float size = kE2m1[nibble & 7];
  return (nibble & 8) != 0 ? -size : size;
}

unsigned FloatToE2m1(float value) {
  const float a = std::fabs(value);
  // Midpoints; an equal value goes to the even code.
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                   (a >= 3.5f) + (a > 5.0f);
  return (std::signbit(value) ? 8u : 0u) | static_cast<unsigned>(code);
}

void EncodeRow(RowFormat format, const float* x, int width, std::byte* to) {
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(to, x, static_cast<size_t>(width) * sizeof(float));
      return;
    case RowFormat::kBf16:
      for (int i = 0; i < width; ++i) {
        const uint16_t bits = FloatToBf16(x[i]);
        std::memcpy(to + i * 2, &bits, sizeof(bits));
      }
      return;
    case RowFormat::kFp8Block32:
      return EncodeFp8(x, width, 32, to);
    case RowFormat::kFp8Block128:
      return EncodeFp8(x, width, 128, to);
    case RowFormat::kFp4Block16:
      return EncodeFp4(x, width, 16, to);
    case RowFormat::kFp4Block32:
      return EncodeFp4(x, width, 32, to);
    case RowFormat::kUnspecified:
      break;
  }
  WEIR_CHECK(false && "a store has a row format");
}

void DecodeRow(RowFormat format, const std::byte* from, int width, float* x) {
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(x, from, static_cast<size_t>(width) * sizeof(float));
      return;
    case RowFormat::kBf16:
      for (int i = 0; i < width; ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, from + i * 2, sizeof(bits));
        x[i] = Bf16ToFloat(bits);
      }
      return;
    case RowFormat::kFp8Block32:
      for (int i = 0; i < width; ++i) {
        x[i] = F8E4m3ToFloat(static_cast<uint8_t>(from[i])) *
               E8m0ToFloat(static_cast<uint8_t>(from[width + i / 32]));
      }
      return;
    case RowFormat::kFp8Block128:
      for (int b = 0; b < width / 128; ++b) {
        float scale = 0;
        std::memcpy(&scale, from + width + b * 4, sizeof(scale));
        for (int i = b * 128; i < (b + 1) * 128; ++i) {
          x[i] = F8E4m3ToFloat(static_cast<uint8_t>(from[i])) * scale;
        }
      }
      return;
    case RowFormat::kFp4Block16:
      for (int b = 0; b < width / 16; ++b) {
        const float scale = F8E4m3ToFloat(static_cast<uint8_t>(from[width / 2 + b]));
        UnpackNibbles(from + b * 8, 16, scale, x + b * 16);
      }
      return;
    case RowFormat::kFp4Block32:
      for (int b = 0; b < width / 32; ++b) {
        const float scale = E8m0ToFloat(static_cast<uint8_t>(from[width / 2 + b]));
        UnpackNibbles(from + b * 16, 32, scale, x + b * 32);
      }
      return;
    case RowFormat::kUnspecified:
      break;
  }
  WEIR_CHECK(false && "a store has a row format");
}

void RoundTripFp8(float* x, int64_t width, int64_t group, bool e8m0) {
  for (int64_t first = 0; first < width; first += group) {
    const int64_t count = std::min(group, width - first);
    const float amax = LargestOf(x + first, count, kFp8AmaxFloor);
    const float scale =
        e8m0 ? E8m0ToFloat(E8m0CeilOf(amax * (1.0f / kE4m3Max))) : amax / kE4m3Max;
    for (int64_t i = first; i < first + count; ++i) {
      x[i] = F8E4m3ToFloat(FloatToF8E4m3(ClampTo(x[i] / scale, kE4m3Max))) * scale;
    }
  }
}

}  // namespace weir::kernels::ref
