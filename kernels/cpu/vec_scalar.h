// SPDX-License-Identifier: Apache-2.0
//
// Four floats in a register, for kernel bodies that run on every x86-64. No fused multiply-add, so
// its bits differ from those of the wider sets.
#pragma once

#include <emmintrin.h>

#include <cstdint>

#include "kernels/cpu/codes.h"

#define WEIR_LANE_CODE static inline __attribute__((always_inline))

namespace weir::kernels::cpu {
namespace {

struct Vec {
  static constexpr int kLanes = 4;
  static constexpr int kMicroRows = 3;
  static constexpr int kMicroVectors = 4;
  static constexpr int kDirectRows = 0;
  using F = __m128;
  using I = __m128i;

  WEIR_LANE_CODE F Zero() { return _mm_setzero_ps(); }
  WEIR_LANE_CODE F Set1(float x) { return _mm_set1_ps(x); }
  WEIR_LANE_CODE F Load(const float* p) { return _mm_loadu_ps(p); }
  WEIR_LANE_CODE void Store(float* p, F x) { _mm_storeu_ps(p, x); }
  WEIR_LANE_CODE F Fma(F a, F b, F c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
  WEIR_LANE_CODE F Add(F a, F b) { return _mm_add_ps(a, b); }
  WEIR_LANE_CODE F Sub(F a, F b) { return _mm_sub_ps(a, b); }
  WEIR_LANE_CODE F Mul(F a, F b) { return _mm_mul_ps(a, b); }
  WEIR_LANE_CODE F Div(F a, F b) { return _mm_div_ps(a, b); }
  WEIR_LANE_CODE F Max(F a, F b) { return _mm_max_ps(a, b); }
  WEIR_LANE_CODE F Min(F a, F b) { return _mm_min_ps(a, b); }
  WEIR_LANE_CODE I Round(F x) { return _mm_cvtps_epi32(x); }
  WEIR_LANE_CODE F Float(I x) { return _mm_cvtepi32_ps(x); }
  WEIR_LANE_CODE F Pow2(I n) {
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23));
  }
  WEIR_LANE_CODE F WidenBf16(const uint16_t* p) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), half));
  }
  WEIR_LANE_CODE F E8m0(const uint8_t* p) {
    const __m128i codes = _mm_set_epi32(p[3], p[2], p[1], p[0]);
    return _mm_castsi128_ps(_mm_slli_epi32(codes, 23));
  }
  // sum[k] += a x[k] in double, product and sum rounded apart.
  WEIR_LANE_CODE void AddDoubles(double* sum, double a, F x) {
    const __m128d by = _mm_set1_pd(a);
    const __m128d low = _mm_cvtps_pd(x);
    const __m128d high = _mm_cvtps_pd(_mm_movehl_ps(x, x));
    _mm_storeu_pd(sum, _mm_add_pd(_mm_loadu_pd(sum), _mm_mul_pd(low, by)));
    _mm_storeu_pd(sum + 2, _mm_add_pd(_mm_loadu_pd(sum + 2), _mm_mul_pd(high, by)));
  }
  // kLanes e4m3 codes, NaN included.
  WEIR_LANE_CODE F F8(const uint8_t* p) {
    return _mm_set_ps(kE4m3.value[p[3]], kE4m3.value[p[2]], kE4m3.value[p[1]], kE4m3.value[p[0]]);
  }
  // kLanes e2m1 codes, two in a byte, the first one low.
  WEIR_LANE_CODE F F4(const uint8_t* p) {
    return _mm_set_ps(kE2m1[p[1] >> 4], kE2m1[p[1] & 15], kE2m1[p[0] >> 4], kE2m1[p[0] & 15]);
  }
  WEIR_LANE_CODE float Sum(F x) {
    const __m128 b = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
  WEIR_LANE_CODE float MaxOf(F x) {
    const __m128 b = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
};

}  // namespace
}  // namespace weir::kernels::cpu
