// SPDX-License-Identifier: Apache-2.0
//
// How AVX-512 expands BF16 and FP4 codes. Included, after vec_avx512.h, only by files compiled for
// it; everything is in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/packed.h"
#include "kernels/cpu/vec_avx512.h"

namespace weir::kernels::cpu {
namespace {

WEIR_LANE_CODE __m512i LoadCodes(const uint8_t* p) {
  return _mm512_loadu_si512(reinterpret_cast<const __m512i*>(p));
}

struct WeightBf16 : Stored<Storage::kBf16> {
  using Group = const uint8_t*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return codes; }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) {
    const __m512i pair = LoadCodes(group + v * 64);
    return _mm512_castsi512_ps(u == 0 ? _mm512_slli_epi32(pair, 16)
                                      : _mm512_and_si512(pair, _mm512_set1_epi32(-65536)));
  }
};

// The permutation looks at the low four bits of each lane, so a shift picks the code.
struct WeightF4 : Stored<Storage::kF4> {
  struct Group {
    __m512i codes[4];
  };
  WEIR_LANE_CODE Group Open(const uint8_t* codes) {
    return {
        {LoadCodes(codes), LoadCodes(codes + 64), LoadCodes(codes + 128), LoadCodes(codes + 192)}};
  }
  WEIR_LANE_CODE Vec::F At(const Group& group, int u, int v) {
    const __m512i index = u == 0 ? group.codes[v] : _mm512_srli_epi32(group.codes[v], 4 * u);
    return _mm512_permutexvar_ps(index, _mm512_load_ps(kE2m1));
  }
};

}  // namespace
}  // namespace weir::kernels::cpu
