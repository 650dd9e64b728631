// SPDX-License-Identifier: Apache-2.0
//
// Eight floats in a register, for kernel bodies compiled with AVX2 and FMA. Included only by files
// compiled for them; everything is in an unnamed namespace and always inlined, so that no symbol
// of it can reach the rest of the program.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/codes.h"

#define WEIR_LANE_CODE static inline __attribute__((always_inline))

namespace weir::kernels::cpu {
namespace {

struct Vec {
  static constexpr int kLanes = 8;
  static constexpr int kMicroRows = 6;
  static constexpr int kMicroVectors = 2;
  static constexpr int kDirectRows = 1;
  using F = __m256;
  using I = __m256i;

  WEIR_LANE_CODE F Zero() { return _mm256_setzero_ps(); }
  WEIR_LANE_CODE F Set1(float x) { return _mm256_set1_ps(x); }
  WEIR_LANE_CODE F Load(const float* p) { return _mm256_loadu_ps(p); }
  WEIR_LANE_CODE void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  WEIR_LANE_CODE F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  WEIR_LANE_CODE F Add(F a, F b) { return _mm256_add_ps(a, b); }
  WEIR_LANE_CODE F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  WEIR_LANE_CODE F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  WEIR_LANE_CODE F Div(F a, F b) { return _mm256_div_ps(a, b); }
  WEIR_LANE_CODE F Max(F a, F b) { return _mm256_max_ps(a, b); }
  WEIR_LANE_CODE F Min(F a, F b) { return _mm256_min_ps(a, b); }
  WEIR_LANE_CODE I Round(F x) { return _mm256_cvtps_epi32(x); }
  WEIR_LANE_CODE F Float(I x) { return _mm256_cvtepi32_ps(x); }
  WEIR_LANE_CODE F Pow2(I n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  WEIR_LANE_CODE F WidenBf16(const uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  WEIR_LANE_CODE F E8m0(const uint8_t* p) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(codes), 23));
  }
  // sum[k] += a x[k] in double, product and sum rounded apart.
  WEIR_LANE_CODE void AddDoubles(double* sum, double a, F x) {
    const __m256d by = _mm256_set1_pd(a);
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    _mm256_storeu_pd(sum, _mm256_add_pd(_mm256_loadu_pd(sum), _mm256_mul_pd(low, by)));
    _mm256_storeu_pd(sum + 4, _mm256_add_pd(_mm256_loadu_pd(sum + 4), _mm256_mul_pd(high, by)));
  }
  // kLanes e4m3 codes, NaN included. A code moved into the fields of an F16 is its value times
  // 2^-8.
  WEIR_LANE_CODE F F8(const uint8_t* p) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i half =
        _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7), _mm_set1_epi16(-0x4080));
    const F value = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256));
    const F magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), value);
    return _mm256_or_ps(value, _mm256_cmp_ps(magnitude, _mm256_set1_ps(448), _CMP_GT_OQ));
  }
  // kLanes e2m1 codes, two in a byte, the first one low.
  WEIR_LANE_CODE F F4(const uint8_t* p) {
    int dword = 0;
    __builtin_memcpy(&dword, p, sizeof(dword));
    const __m256i shift = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(dword), shift);
    const F magnitude = _mm256_permutevar8x32_ps(_mm256_load_ps(kE2m1), codes);
    const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(codes, 3), 31);
    return _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign));
  }
  WEIR_LANE_CODE float Sum(F x) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
  WEIR_LANE_CODE float MaxOf(F x) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
};

}  // namespace
}  // namespace weir::kernels::cpu
