// SPDX-License-Identifier: Apache-2.0
//
// Bodies that expand rows of KV stores (kernels/op/formats.h), to the bits of the reference. The
// including file has defined Vec; everything is in an unnamed namespace.
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

void DecodeFp8Block32Row(const uint8_t* from, int width, float* to) {
  const uint8_t* scales = from + width;
  for (int i = 0; i < width; i += 32) {
    const Vec::F scale = Vec::Set1(E8m0Value(*scales++));
#pragma GCC unroll 8
    for (int k = i; k < i + 32; k += Vec::kLanes) {
      Vec::Store(to + k, Vec::Mul(Vec::F8(from + k), scale));
    }
  }
}

template <int kBlock>
WEIR_LANE_CODE void DecodeFp4(const uint8_t* from, int width, float* to) {
  const uint8_t* scales = from + width / 2;
  for (int i = 0; i < width; i += kBlock) {
    const uint8_t byte = *scales++;
    const Vec::F scale = Vec::Set1(kBlock == 16 ? kE4m3.value[byte] : E8m0Value(byte));
#pragma GCC unroll 8
    for (int k = i; k < i + kBlock; k += Vec::kLanes) {
      Vec::Store(to + k, Vec::Mul(Vec::F4(from + k / 2), scale));
    }
  }
}

void DecodeFp4Block16Row(const uint8_t* from, int width, float* to) {
  DecodeFp4<16>(from, width, to);
}
void DecodeFp4Block32Row(const uint8_t* from, int width, float* to) {
  DecodeFp4<32>(from, width, to);
}

void FillStore(KernelTable* table) {
  table->decode_fp8_block32 = DecodeFp8Block32Row;
  table->decode_fp4_block16 = DecodeFp4Block16Row;
  table->decode_fp4_block32 = DecodeFp4Block32Row;
}

}  // namespace
}  // namespace weir::kernels::cpu
