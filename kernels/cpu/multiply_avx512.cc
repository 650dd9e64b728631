// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"
// clang-format off
// The body is written on Vec.
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/multiply_body.h"
#include "kernels/cpu/weights_avx512.h"
// clang-format on

namespace weir::kernels::cpu {
namespace {

// e4m3 moved into the fields of an F16 is its value times 2^-8, subnormals included.
struct WeightF8 : Stored<Storage::kF8> {
  static constexpr float kFactor = 256;
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + v * 16));
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16(-0x4080)));
  }
};

}  // namespace

void FillMultiplyAvx512(KernelTable* table) {
  table->multiply_tile = MultiplyTile<WeightBf16, WeightF8, WeightF4>;
}

}  // namespace weir::kernels::cpu
