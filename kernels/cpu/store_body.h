// SPDX-License-Identifier: Apache-2.0
//
// Bodies that expand and pack rows of KV stores (kernels/op/formats.h), to the bits of the
// reference. Packing is plain code over independent lanes, which the compiler turns into registers.
// The including file has defined Vec; everything is in an unnamed namespace.
#pragma once

#include "kernels/cpu/codes.h"
#include "kernels/cpu/kernel_table.h"

namespace weir::kernels::cpu {
namespace {

WEIR_LANE_CODE float E8m0Value(uint8_t byte) {
  uint32_t bits = static_cast<uint32_t>(byte) << 23;
  if (byte == 0) bits = 1u << 22;
  if (byte == 255) bits = 0x7fc00000u;
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

void DecodeFp8Block32Row(const uint8_t* from, const uint8_t* scales, int width, float* to) {
  for (int i = 0; i < width; i += 32) {
    const Vec::F scale = Vec::Set1(E8m0Value(*scales++));
#pragma GCC unroll 8
    for (int k = i; k < i + 32; k += Vec::kLanes) {
      Vec::Store(to + k, Vec::Mul(Vec::F8(from + k), scale));
    }
  }
}

template <int kBlock>
WEIR_LANE_CODE void DecodeFp4(const uint8_t* from, const uint8_t* scales, int width, float* to) {
  for (int i = 0; i < width; i += kBlock) {
    const uint8_t byte = *scales++;
    const Vec::F scale = Vec::Set1(kBlock == 16 ? kE4m3.value[byte] : E8m0Value(byte));
#pragma GCC unroll 8
    for (int k = i; k < i + kBlock; k += Vec::kLanes) {
      Vec::Store(to + k, Vec::Mul(Vec::F4(from + k / 2), scale));
    }
  }
}

void DecodeFp4Block16Row(const uint8_t* from, const uint8_t* scales, int width, float* to) {
  DecodeFp4<16>(from, scales, width, to);
}
void DecodeFp4Block32Row(const uint8_t* from, const uint8_t* scales, int width, float* to) {
  DecodeFp4<32>(from, scales, width, to);
}

WEIR_LANE_CODE uint32_t BitsOf(float value) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// To nearest even, saturating; NaN becomes 0x7f.
WEIR_LANE_CODE uint32_t E4m3Code(float value) {
  constexpr uint32_t kMost = 0x43e00000;         // 448
  constexpr uint32_t kLeastNormal = 0x3c800000;  // 2^-6
  constexpr float kRound = 12582912.0f;          // adding it leaves an integer in the low bits
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = bits >> 24 & 0x80;
  const uint32_t size = bits & 0x7fffffff;
  const uint32_t within = size < kMost ? size : kMost;
  const uint32_t normal = ((within + 0x7ffff + (within >> 20 & 1)) >> 20) - (120 << 3);
  const float magnitude = value < 0 ? -value : value;
  const float small = magnitude < 1 ? magnitude : 1;
  const uint32_t subnormal = BitsOf(small * 512 + kRound) - BitsOf(kRound);
  const uint32_t code = size < kLeastNormal ? subnormal : normal;
  return sign | (size > 0x7f800000 ? 0x7f : code);
}

WEIR_LANE_CODE uint32_t E2m1Code(float value) {
  const float a = value < 0 ? -value : value;
  const uint32_t code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                        (a >= 3.5f) + (a > 5.0f);
  return (BitsOf(value) >> 31) << 3 | code;
}

// The exponent byte of the least power of two that is not below `value`, positive and normal.
WEIR_LANE_CODE uint8_t E8m0Ceil(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t exponent = (bits >> 23 & 255) + ((bits & 0x7fffff) != 0 ? 1 : 0);
  return static_cast<uint8_t>(exponent < 254 ? exponent : 254);
}

// Of `count` values and `floor`; what is not a number does not count.
WEIR_LANE_CODE float Largest(const float* x, int count, float floor) {
  Vec::F most = Vec::Set1(floor);
#pragma GCC unroll 8
  for (int i = 0; i < count; i += Vec::kLanes) {
    const Vec::F value = Vec::Load(x + i);
    most = Vec::Max(Vec::Max(value, Vec::Sub(Vec::Zero(), value)), most);
  }
  return Vec::MaxOf(most);
}

void EncodeFp8Block32Row(const float* x, int width, uint8_t* to) {
  for (int b = 0; b < width / 32; ++b) {
    const float* group = x + b * 32;
    const uint8_t byte = E8m0Ceil(Largest(group, 32, 1e-4f) * (1.0f / 448));
    const float scale = E8m0Value(byte);
    for (int i = 0; i < 32; ++i) {
      to[b * 32 + i] = static_cast<uint8_t>(E4m3Code(group[i] / scale));
    }
    to[width + b] = byte;
  }
}

template <int kBlock>
WEIR_LANE_CODE void EncodeFp4(const float* x, int width, uint8_t* to) {
  for (int b = 0; b < width / kBlock; ++b) {
    const float* group = x + b * kBlock;
    const float most = Largest(group, kBlock, kBlock == 16 ? 6 * 0x1p-9f : 6 * 0x1p-126f);
    const uint8_t byte =
        kBlock == 16 ? static_cast<uint8_t>(E4m3Code(most / 6)) : E8m0Ceil(most * (1.0f / 6));
    const float scale = kBlock == 16 ? kE4m3.value[byte] : E8m0Value(byte);
    uint8_t code[kBlock];
    for (int i = 0; i < kBlock; ++i) code[i] = static_cast<uint8_t>(E2m1Code(group[i] / scale));
    for (int i = 0; i < kBlock / 2; ++i) {
      to[b * kBlock / 2 + i] = static_cast<uint8_t>(code[2 * i] | code[2 * i + 1] << 4);
    }
    to[width / 2 + b] = byte;
  }
}

void EncodeFp4Block16Row(const float* x, int width, uint8_t* to) { EncodeFp4<16>(x, width, to); }
void EncodeFp4Block32Row(const float* x, int width, uint8_t* to) { EncodeFp4<32>(x, width, to); }

void FillStore(KernelTable* table) {
  table->decode_fp8_block32 = DecodeFp8Block32Row;
  table->decode_fp4_block16 = DecodeFp4Block16Row;
  table->decode_fp4_block32 = DecodeFp4Block32Row;
  table->encode_fp8_block32 = EncodeFp8Block32Row;
  table->encode_fp4_block16 = EncodeFp4Block16Row;
  table->encode_fp4_block32 = EncodeFp4Block32Row;
}

}  // namespace
}  // namespace weir::kernels::cpu
