// SPDX-License-Identifier: Apache-2.0
//
// The number formats of kernels/op/formats.h, one value and one row at a time, in F32 arithmetic as
// released models quantise. Pure; any thread. A value that is not a number becomes the NaN code of
// E4M3 and 0 in E2M1; nothing here fails.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op/formats.h"

namespace weir::kernels::ref {

// float8 e4m3fn: no infinities, 0x7f and 0xff are NaN, largest 448.
float F8E4m3ToFloat(uint8_t code);
uint8_t FloatToF8E4m3(float value);

// 2^(byte - 127); 255 is NaN.
float E8m0ToFloat(uint8_t byte);
// The byte of the smallest power of two that is not below `value`, which is positive and normal.
uint8_t E8m0CeilOf(float value);

// sign << 3 | code.
float E2m1ToFloat(unsigned nibble);
unsigned FloatToE2m1(float value);

void EncodeRow(RowFormat format, const float* x, int width, std::byte* to);
void DecodeRow(RowFormat format, const std::byte* from, int width, float* x);

// Rounds to FP8 and back, a scale per `group` neighbours; the last group may be shorter. What
// `vendor` numerics do to activations before a quantised weight: E8M0 scales, or F32 ones (V3).
void RoundTripFp8(float* x, int64_t width, int64_t group, bool e8m0);

}  // namespace weir::kernels::ref
