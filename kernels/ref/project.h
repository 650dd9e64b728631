// SPDX-License-Identifier: Apache-2.0
//
// A linear map with the roundings of `vendor` numerics around it: activations go through FP8 in front
// of an FP8 or FP4 weight, and the product becomes BF16. Otherwise it is Multiply. Any thread.
#pragma once

#include <vector>

#include "kernels/ref/access.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/matrix.h"

namespace weir::kernels::ref {

// Parameters as Multiply's; outputs are float.
template <class In, class Out>
void Project(const Matrix& m, int count, const Rounding& round, In in, Out out) {
  if (!round.on()) return Multiply(m, count, in, out);
  const bool quantised = m.dtype == DType::kF8E4m3 || m.dtype == DType::kI8;
  std::vector<float> x(static_cast<size_t>(m.cols));
  for (int r = 0; r < count; ++r) {
    x.assign(in(r), in(r) + m.cols);
    if (quantised) {
      RoundTripFp8(x.data(), m.cols, m.block_cols, m.scale_dtype == DType::kF8E8m0);
    }
    float* y = out(r);
    Multiply(
        m, 1, [&](int) { return x.data(); }, [&](int) { return y; });
    for (int64_t o = 0; o < m.rows; ++o) y[o] = round(y[o]);
  }
}

}  // namespace weir::kernels::ref
