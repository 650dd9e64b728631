// SPDX-License-Identifier: Apache-2.0
//
// Rounding to stored number formats, as a quantiser of released checkpoints does it. Pure.
#pragma once

#include <cstdint>

namespace weir::tools {

// Nearest float8 e4m3fn code, ties to the even code, saturating at 448.
uint8_t E4m3Code(double value);

// Nearest FP4 (e2m1) code of four bits, ties to the even code, saturating at 6.
uint8_t E2m1Code(double value);

// The smallest power of two not below value / largest, as an e8m0 byte (exponent + 127).
uint8_t E8m0Code(double value, double largest);

// Nearest bfloat16, ties to even.
uint16_t Bf16Code(float value);

}  // namespace weir::tools
