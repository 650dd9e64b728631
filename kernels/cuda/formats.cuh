// SPDX-License-Identifier: Apache-2.0
//
// Numbers of 4 and 8 bits and their scales (kernels/op/formats.h), in a kernel's registers. Pure.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace weir::kernels::cuda {

__device__ __forceinline__ float PowerOfTwo(uint32_t e8m0) {
  return dev::BitsToFloat(e8m0 == 0 ? 0x00400000u : e8m0 << 23);
}

// The three bits of size are exponent and mantissa: in an F32's place they read 2^-126 times too
// small, the two below 1 as subnormals.
__device__ __forceinline__ float E2m1ToFloat(uint32_t nibble) {
  return dev::BitsToFloat((nibble & 8) << 28 | (nibble & 7) << 22) * 0x1p126f;
}

// To nearest, ties to the even code.
__device__ __forceinline__ uint32_t FloatToE2m1(float value) {
  const float a = fabsf(value);
  const uint32_t code = (a > 0.25f ? 1u : 0u) + (a >= 0.75f ? 1u : 0u) + (a > 1.25f ? 1u : 0u) +
                        (a >= 1.75f ? 1u : 0u) + (a > 2.5f ? 1u : 0u) + (a >= 3.5f ? 1u : 0u) +
                        (a > 5.0f ? 1u : 0u);
  return code | (dev::FloatToBits(value) >> 28 & 8);
}

// The least power of two that is not below `value`, which is positive and normal.
__device__ __forceinline__ uint32_t E8m0CeilOf(float value) {
  const uint32_t bits = dev::FloatToBits(value);
  return min((bits >> 23 & 255) + ((bits & 0x7fffff) != 0 ? 1u : 0u), 254u);
}

// 16 values of a kFp8Block32 row as BF16, exactly.
__device__ __forceinline__ void ExpandFp8(const unsigned char* row, int width, int unit,
                                          uint32_t (&to)[8]) {
  const uint4 packed = dev::Load(reinterpret_cast<const uint4*>(row) + unit);
  const float scale = PowerOfTwo(row[width + unit / 2]);
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t pair = words[i / 2] >> (i % 2 * 16);
    to[i] = dev::PackBf16(dev::E4m3ToFloat(static_cast<uint8_t>(pair)) * scale,
                          dev::E4m3ToFloat(static_cast<uint8_t>(pair >> 8)) * scale);
  }
}

}  // namespace weir::kernels::cuda
