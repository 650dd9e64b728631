// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/matrix.h"

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "kernels/ref/access.h"
#include "kernels/ref/formats.h"

namespace weir::kernels::ref {
namespace {

double ScaleAt(const HostMatrix& m, int64_t row, int64_t col) {
  const int64_t stride = CeilDiv(m.cols, m.block_cols);
  const int64_t block = row / m.block_rows * stride + col / m.block_cols;
  if (m.scale_dtype == DType::kF8E8m0) return E8m0ToFloat(static_cast<uint8_t>(m.scales[block]));
  return LoadAs<float>(m.scales + block * 4);
}

float Stored(const HostMatrix& m, int64_t row, int64_t col) {
  const int64_t index = row * m.cols + col;
  switch (m.dtype) {
    case DType::kF32:
      return LoadAs<float>(m.values + index * 4);
    case DType::kBf16:
      return Bf16ToFloat(LoadAs<uint16_t>(m.values + index * 2));
    case DType::kF8E4m3:
      return static_cast<float>(F8E4m3ToFloat(static_cast<uint8_t>(m.values[index])) *
                                ScaleAt(m, row, col));
    case DType::kI8: {
      const auto pair = static_cast<unsigned>(m.values[index / 2]);
      return static_cast<float>(E2m1ToFloat(index % 2 == 0 ? pair & 15 : pair >> 4) *
                                ScaleAt(m, row, col));
    }
    default:
      WEIR_CHECK(false && "dtype of a weight was verified at load");
      return 0;
  }
}

}  // namespace

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
