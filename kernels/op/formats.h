// SPDX-License-Identifier: Apache-2.0
//
// How one row of a KV store lies in memory (v41-spec 4 and 9). A row of `width` values is its values
// first and its scales after them, without padding; a 4-bit pair has the even column in the low
// nibble, and a nibble is sign << 3 | code of 0, 0.5, 1, 1.5, 2, 3, 4, 6. Rounding is to nearest
// even, saturating. Rows may lie at any byte address.
//   kFp8Block32  e4m3 values; scale s = 2^ceil(log2(max(amax, 1e-4) / 448)) per 32, byte = e + 127
//   kFp4Block32  e2m1 values; scale s = 2^ceil(log2(max(amax, 6 * 2^-126) / 6)) per 32
//   kFp8Block128 as kFp8Block32 with a scale per 128, kept as F32
//   kFp4Block16  e2m1 values; scale s = e4m3(max(amax, 6 * 2^-9) / 6) per 16, one e4m3 byte
// A value is code(x / s) * s. `width` is a multiple of the block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::kernels {

enum class RowFormat : uint8_t {
  kUnspecified = 0,
  kF32 = 1,
  kBf16 = 2,
  kFp8Block32 = 3,  // sliding windows: 528 bytes for 512 values
  kFp4Block16 = 4,  // compressed rows: 288 bytes for 512 values
  kFp4Block32 = 5,  // index keys: 68 bytes for 128 values
  kFp8Block128 = 6,  // V3.2's index keys: 132 bytes for 128 values
};

constexpr size_t RowBytes(RowFormat format, size_t width) {
  switch (format) {
    case RowFormat::kF32:
      return width * 4;
    case RowFormat::kBf16:
      return width * 2;
    case RowFormat::kFp8Block32:
      return width + width / 32;
    case RowFormat::kFp4Block16:
      return width / 2 + width / 16;
    case RowFormat::kFp4Block32:
      return width / 2 + width / 32;
    case RowFormat::kFp8Block128:
      return width + width / 128 * 4;
    case RowFormat::kUnspecified:
      break;
  }
  return 0;
}

}  // namespace weir::kernels
