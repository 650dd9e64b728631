// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"
// clang-format off
// The body is written on Vec.
#include "kernels/cpu/vec_scalar.h"
#include "kernels/cpu/multiply_body.h"
// clang-format on

namespace weir::kernels::cpu {
namespace {

struct WeightBf16 {
  static constexpr int kUnit = 2;
  static constexpr int kGroupBytes = 4 * kTile;
  static constexpr float kFactor = 1;
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const __m128i pair = _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + v * 16));
    return _mm_castsi128_ps(u == 0 ? _mm_slli_epi32(pair, 16)
                                   : _mm_and_si128(pair, _mm_set1_epi32(-65536)));
  }
};

struct F8Values {
  float value[256] = {};
};
constexpr F8Values MakeF8Values() {
  F8Values values;
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
constexpr F8Values kF8Values = MakeF8Values();

struct WeightF8 {
  static constexpr int kUnit = 1;
  static constexpr int kGroupBytes = kTile;
  static constexpr float kFactor = 1;
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const uint8_t* at = group + v * 4;
    return _mm_set_ps(kF8Values.value[at[3]], kF8Values.value[at[2]], kF8Values.value[at[1]],
                      kF8Values.value[at[0]]);
  }
};

const float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// Input u of eight is a nibble of byte u / 2 of each output's dword.
struct WeightF4 {
  static constexpr int kUnit = 8;
  static constexpr int kGroupBytes = 4 * kTile;
  static constexpr float kFactor = 1;
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const uint8_t* at = group + v * 16 + u / 2;
    const int shift = u % 2 * 4;
    return _mm_set_ps(kE2m1[at[12] >> shift & 15], kE2m1[at[8] >> shift & 15],
                      kE2m1[at[4] >> shift & 15], kE2m1[at[0] >> shift & 15]);
  }
};

}  // namespace

void FillMultiplyScalar(KernelTable* table) {
  table->multiply_tile = MultiplyTile<WeightBf16, WeightF8, WeightF4>;
}

}  // namespace weir::kernels::cpu
