// SPDX-License-Identifier: Apache-2.0
//
// Norm and rotation of one row, shared by every op that has them. Pure; any thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ref/access.h"

namespace weir::kernels::ref {

struct Rotation {
  double cosine;
  double sine;
};

inline Rotation RotationOf(int32_t position, float frequency) {
  const double angle = static_cast<float>(position) * frequency;  // an F32 product on purpose
  return {std::cos(angle), std::sin(angle)};
}

inline void Rotate(float* pair, const Rotation& by, const Rounding& round) {
  const double a = pair[0];
  const double b = pair[1];
  pair[0] = round(a * by.cosine - b * by.sine);
  pair[1] = round(a * by.sine + b * by.cosine);
}

// Rotates the last `rope` of `width` values.
inline void RotateTail(float* x, int width, int rope, const float* frequency, int32_t position,
                       const Rounding& round) {
  for (int i = 0; i < rope / 2; ++i) {
    Rotate(x + width - rope + 2 * i, RotationOf(position, frequency[i]), round);
  }
}

// out = x / sqrt(mean(x^2) + eps) * weight; out may be x.
inline void NormRow(const float* x, int width, double eps, const float* weight, float* out,
                    const Rounding& round) {
  const double inverse = 1.0 / std::sqrt(Dot(x, x, width) / width + eps);
  for (int i = 0; i < width; ++i) out[i] = round(x[i] * inverse * weight[i]);
}

}  // namespace weir::kernels::ref
