// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"
// clang-format off
// The body is written on Vec.
#include "kernels/cpu/vec_scalar.h"
#include "kernels/cpu/multiply_body.h"
// clang-format on

namespace weir::kernels::cpu {
namespace {

struct WeightBf16 : Stored<Storage::kBf16> {
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const __m128i pair = _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + v * 16));
    return _mm_castsi128_ps(u == 0 ? _mm_slli_epi32(pair, 16)
                                   : _mm_and_si128(pair, _mm_set1_epi32(-65536)));
  }
};

struct WeightF8 : Stored<Storage::kF8> {
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    return Vec::F8(group + v * 4);
  }
};

// Input u of eight is a nibble of byte u / 2 of each output's dword.
struct WeightF4 : Stored<Storage::kF4> {
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
