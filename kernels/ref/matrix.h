// SPDX-License-Identifier: Apache-2.0
//
// The reference backend's weight: dequantised once to F32, in tiles of kTile outputs, inputs in
// order: value(o, i) = data[(o / kTile * cols + i) * kTile + o % kTile], padded with zero outputs.
// One output's sum runs over the inputs from 0 upwards in double, whatever the batch: rows are
// invariant by construction, and a tile of outputs fills vector registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/op/tensor.h"

namespace weir::kernels::ref {

inline constexpr int kTile = 16;

// Bytes LoadMatrix needs for a weight of this shape.
size_t MatrixBytes(int64_t rows, int64_t cols);

// Fills `to` (MatrixBytes) from the stored form: F32, BF16, F8_E4M3 and packed FP4 with scales.
void FillMatrix(const HostMatrix& from, float* to);

inline float MatrixAt(const Matrix& m, int64_t output, int64_t input) {
  const auto* data = reinterpret_cast<const float*>(m.address);
  return data[(output / kTile * m.cols + input) * kTile + output % kTile];
}

// out(r)[o] = sum_i in(r)[i] * W[o][i] for r < count. `in` and `out` map a row to its first
// element; outputs are float or double.
template <class In, class Out>
void Multiply(const Matrix& m, int count, In in, Out out) {
  const auto* data = reinterpret_cast<const float*>(m.address);
  for (int64_t first = 0; first < m.rows; first += kTile) {
    const float* tile = data + first * m.cols;
    const int64_t wide = m.rows - first < kTile ? m.rows - first : kTile;
    for (int r = 0; r < count; ++r) {
      const float* x = in(r);
      double sum[kTile] = {};
      for (int64_t i = 0; i < m.cols; ++i) {
        const double value = x[i];
        const float* w = tile + i * kTile;
        for (int k = 0; k < kTile; ++k) sum[k] += value * static_cast<double>(w[k]);
      }
      auto* y = out(r) + first;
      using Output = std::remove_reference_t<decltype(*y)>;
      for (int64_t k = 0; k < wide; ++k) y[k] = static_cast<Output>(sum[k]);
    }
  }
}

}  // namespace weir::kernels::ref
