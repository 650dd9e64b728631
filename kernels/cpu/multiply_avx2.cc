// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"
// clang-format off
// The body is written on Vec.
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/multiply_body.h"
// clang-format on

namespace weir::kernels::cpu {
namespace {

WEIR_LANE_CODE __m256i LoadCodes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

struct WeightBf16 : Stored<Storage::kBf16> {
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const __m256i pair = LoadCodes(group + v * 32);
    return _mm256_castsi256_ps(u == 0 ? _mm256_slli_epi32(pair, 16)
                                      : _mm256_and_si256(pair, _mm256_set1_epi32(-65536)));
  }
};

// e4m3 moved into the fields of an F16 is its value times 2^-8, subnormals included.
struct WeightF8 : Stored<Storage::kF8> {
  static constexpr float kFactor = 256;
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(group + v * 8));
    const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7);
    return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16(-0x4080)));
  }
};

// The permutation looks at the low three bits of each lane; the fourth is the sign.
struct WeightF4 : Stored<Storage::kF4> {
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const __m256i codes = LoadCodes(group + v * 32);
    const __m256 magnitude =
        _mm256_permutevar8x32_ps(_mm256_load_ps(kE2m1), _mm256_srli_epi32(codes, 4 * u));
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(codes, 28 - 4 * u),
                                          _mm256_set1_epi32(static_cast<int>(0x80000000u)));
    return _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign));
  }
};

}  // namespace

void FillMultiplyAvx2(KernelTable* table) {
  table->multiply_tile = MultiplyTile<WeightBf16, WeightF8, WeightF4>;
}

}  // namespace weir::kernels::cpu
