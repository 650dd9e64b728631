// SPDX-License-Identifier: Apache-2.0
//
// The values of the narrow number formats as plain tables, for the files of every instruction set:
// everything is in an unnamed namespace.
#pragma once

#include <cstdint>

namespace weir::kernels::cpu {
namespace {

// e2m1 by sign << 3 | code.
alignas(64) constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// e4m3 by code, NaN included.
struct E4m3Values {
  float value[256] = {};
};
constexpr E4m3Values MakeE4m3Values() {
  E4m3Values values;
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    float value = static_cast<float>(code & 7) / 8 + (exponent > 0 ? 1.0f : 0.0f);
    for (int e = exponent > 0 ? exponent : 1; e < 7; ++e) value /= 2;
    for (int e = exponent; e > 7; --e) value *= 2;
    if ((code & 127) == 127) value = __builtin_nanf("");
    values.value[code] = code < 128 ? value : -value;
  }
  return values;
}
constexpr E4m3Values kE4m3 = MakeE4m3Values();

}  // namespace
}  // namespace weir::kernels::cpu
