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

// The upper half of the F32 of each e4m3 code without its sign: exact, NaN included.
struct F8Table {
  alignas(64) uint8_t low[128] = {};
  alignas(64) uint8_t high[128] = {};
};

constexpr F8Table MakeF8Table() {
  F8Table table;
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> 3;
    int mantissa = code & 7;
    int bits = 0;
    if (code == 127) {
      bits = 0x7fc0;
    } else if (exponent > 0) {
      bits = ((exponent + 120) << 7) | (mantissa << 4);
    } else if (mantissa > 0) {
      exponent = 121;  // subnormal: m / 8 * 2^-6
      while (mantissa < 8) {
        mantissa <<= 1;
        --exponent;
      }
      bits = (exponent << 7) | ((mantissa & 7) << 4);
    }
    table.low[code] = static_cast<uint8_t>(bits & 255);
    table.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return table;
}
constexpr F8Table kF8Table = MakeF8Table();

// Where the two interleavings and the split of pairs below take output v * 16 + lane from.
struct ByteOrder {
  uint8_t byte[kTile] = {};
};
constexpr ByteOrder MakeByteOrder() {
  ByteOrder order;
  for (int o = 0; o < kTile; ++o) {
    const int v = o / 16;
    const int lane = o % 16;
    order.byte[o] = static_cast<uint8_t>(lane / 4 * 16 + v / 2 * 8 + lane % 4 * 2 + v % 2);
  }
  return order;
}
constexpr ByteOrder kByteOrder = MakeByteOrder();

// A line of 64 codes: two table look-ups give the two bytes of every BF16, interleaving joins them,
// and a shift or a mask makes F32 of the lower or upper of a pair.
struct WeightF8 : Stored<Storage::kF8> {
  struct Group {
    __m512i words[2];
  };
  WEIR_LANE_CODE Group Open(const uint8_t* p) {
    const __m512i codes = LoadCodes(p);
    const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kF8Table.low), codes,
                                                 _mm512_load_si512(kF8Table.low + 64));
    const __m512i magnitude = _mm512_permutex2var_epi8(_mm512_load_si512(kF8Table.high), codes,
                                                       _mm512_load_si512(kF8Table.high + 64));
    // magnitude | (codes & 0x80)
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xf8);
    return {{_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)}};
  }
  WEIR_LANE_CODE Vec::F At(const Group& group, int u, int v) {
    const __m512i words = group.words[v / 2];
    return _mm512_castsi512_ps(v % 2 == 0 ? _mm512_slli_epi32(words, 16)
                                          : _mm512_and_si512(words, _mm512_set1_epi32(-65536)));
  }
};

}  // namespace

void FillMultiplyAvx512Vnni(KernelTable* table) {
  table->multiply_tile = MultiplyTile<WeightBf16, WeightF8, WeightF4>;
  table->byte_of_output = kByteOrder.byte;
}

}  // namespace weir::kernels::cpu
