// SPDX-License-Identifier: Apache-2.0
//
// The turn that a position gives a pair of values. Pure.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace weir::kernels::cuda {

struct Turn {
  double cosine;
  double sine;
};

// The angle is an F32 product, as models were trained with; its sine is taken to full precision. In
// F64 the quarter turns come off exactly for any position, and the series need no table in memory,
// as the library's own reduction would.
__device__ __forceinline__ Turn TurnOf(int position, float frequency) {
  const double angle = static_cast<float>(position) * frequency;
  const double quarters = rint(angle * 0.63661977236758134308);
  const double x = fma(quarters, -6.123233995736766e-17, fma(quarters, -1.5707963267948966, angle));
  const double y = x * x;
  double sine = -1.0 / 39916800;
  sine = fma(sine, y, 1.0 / 362880);
  sine = fma(sine, y, -1.0 / 5040);
  sine = fma(sine, y, 1.0 / 120);
  sine = fma(sine, y, -1.0 / 6);
  sine = fma(sine * y, x, x);
  double cosine = 1.0 / 479001600;
  cosine = fma(cosine, y, -1.0 / 3628800);
  cosine = fma(cosine, y, 1.0 / 40320);
  cosine = fma(cosine, y, -1.0 / 720);
  cosine = fma(cosine, y, 1.0 / 24);
  cosine = fma(cosine, y, -0.5);
  cosine = fma(cosine, y, 1.0);
  const int quarter = static_cast<int>(static_cast<long long>(quarters) & 3);
  const double s = quarter % 2 == 0 ? sine : cosine;
  const double c = quarter % 2 == 0 ? cosine : sine;
  return {quarter == 1 || quarter == 2 ? -c : c, quarter >= 2 ? -s : s};
}

}  // namespace weir::kernels::cuda
