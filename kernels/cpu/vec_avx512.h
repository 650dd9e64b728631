// SPDX-License-Identifier: Apache-2.0
//
// Sixteen floats in a register, for kernel bodies compiled with AVX-512. Included only by files
// compiled for it; everything is in an unnamed namespace and always inlined, so that no symbol of
// it can reach the rest of the program.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/codes.h"

#define WEIR_LANE_CODE static inline __attribute__((always_inline))

namespace weir::kernels::cpu {
namespace {

struct Vec {
  static constexpr int kLanes = 16;
  static constexpr int kMicroRows = 6;     // rows of a register block
  static constexpr int kMicroVectors = 4;  // and vectors of outputs
  static constexpr int kDirectRows = 4;    // rows that expand weights straight into registers
  using F = __m512;
  using I = __m512i;

  WEIR_LANE_CODE F Zero() { return _mm512_setzero_ps(); }
  WEIR_LANE_CODE F Set1(float x) { return _mm512_set1_ps(x); }
  WEIR_LANE_CODE F Load(const float* p) { return _mm512_loadu_ps(p); }
  WEIR_LANE_CODE void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  WEIR_LANE_CODE F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  WEIR_LANE_CODE F Add(F a, F b) { return _mm512_add_ps(a, b); }
  WEIR_LANE_CODE F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  WEIR_LANE_CODE F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  WEIR_LANE_CODE F Div(F a, F b) { return _mm512_div_ps(a, b); }
  WEIR_LANE_CODE F Max(F a, F b) { return _mm512_max_ps(a, b); }
  WEIR_LANE_CODE F Min(F a, F b) { return _mm512_min_ps(a, b); }
  WEIR_LANE_CODE I Round(F x) { return _mm512_cvtps_epi32(x); }
  WEIR_LANE_CODE F Float(I x) { return _mm512_cvtepi32_ps(x); }
  WEIR_LANE_CODE F Pow2(I n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
  }
  WEIR_LANE_CODE F WidenBf16(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  // 2^(code - 127) of each of kLanes bytes.
  WEIR_LANE_CODE F E8m0(const uint8_t* p) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(codes), 23));
  }
  // sum[k] += a x[k] in double, product and sum rounded apart.
  WEIR_LANE_CODE void AddDoubles(double* sum, double a, F x) {
    const __m512d by = _mm512_set1_pd(a);
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    _mm512_storeu_pd(sum, _mm512_add_pd(_mm512_loadu_pd(sum), _mm512_mul_pd(low, by)));
    _mm512_storeu_pd(sum + 8, _mm512_add_pd(_mm512_loadu_pd(sum + 8), _mm512_mul_pd(high, by)));
  }
  // kLanes e4m3 codes, NaN included. A code moved into the fields of an F16 is its value times
  // 2^-8.
  WEIR_LANE_CODE F F8(const uint8_t* p) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                          _mm256_set1_epi16(-0x4080));
    const F value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256));
    const __mmask16 none =
        _mm512_cmp_ps_mask(_mm512_abs_ps(value), _mm512_set1_ps(448), _CMP_GT_OQ);
    return _mm512_mask_mov_ps(value, none, _mm512_set1_ps(__builtin_nanf("")));
  }
  // kLanes e2m1 codes, two in a byte, the first one low.
  WEIR_LANE_CODE F F4(const uint8_t* p) {
    const __m512i shift =
        _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    const __m512i half = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m512i dwords = _mm512_permutexvar_epi32(half, _mm512_castsi128_si512(codes));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(dwords, shift), _mm512_load_ps(kE2m1));
  }
  // Fixed tree: halves are added until one lane is left.
  WEIR_LANE_CODE float Sum(F x) {
    const __m256 low = _mm512_castps512_ps256(x);
    const __m256 high = _mm512_extractf32x8_ps(x, 1);
    const __m256 a = _mm256_add_ps(low, high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
  WEIR_LANE_CODE float MaxOf(F x) { return _mm512_reduce_max_ps(x); }
};

}  // namespace
}  // namespace weir::kernels::cpu
