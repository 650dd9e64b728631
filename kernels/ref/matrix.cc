// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/matrix.h"

#include <array>
#include <cmath>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "kernels/ref/access.h"

namespace weir::kernels::ref {
namespace {

std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    double value = exponent == 0 ? std::ldexp(mantissa / 8.0, -6)
                                 : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
    if ((code & 127) == 127) value = std::nan("");
    table[code] = static_cast<float>((code & 128) != 0 ? -value : value);
  }
  return table;
}

float Stored(const HostMatrix& m, int64_t row, int64_t col) {
  const int64_t index = row * m.cols + col;
  switch (m.dtype) {
    case DType::kF32:
      return LoadAs<float>(m.values + index * 4);
    case DType::kBf16:
      return Bf16ToFloat(LoadAs<uint16_t>(m.values + index * 2));
    case DType::kF8E4m3: {
      const int64_t stride = CeilDiv(m.cols, m.block_cols);
      const int64_t block = row / m.block_rows * stride + col / m.block_cols;
      const double scale = LoadAs<float>(m.scales + block * 4);
      return static_cast<float>(F8E4m3ToFloat(static_cast<uint8_t>(m.values[index])) * scale);
    }
    default:
      WEIR_CHECK(false && "dtype of a weight was verified at load");
      return 0;
  }
}

}  // namespace

float F8E4m3ToFloat(uint8_t code) {
  static const std::array<float, 256> kTable = MakeE4m3Table();
  return kTable[code];
}

size_t MatrixBytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(AlignUp<int64_t>(rows, kTile) * cols) * sizeof(float);
}

void FillMatrix(const HostMatrix& from, float* to) {
  for (int64_t first = 0; first < from.rows; first += kTile) {
    for (int64_t i = 0; i < from.cols; ++i) {
      for (int k = 0; k < kTile; ++k) {
        *to++ = first + k < from.rows ? Stored(from, first + k, i) : 0.0f;
      }
    }
  }
}

}  // namespace weir::kernels::ref
