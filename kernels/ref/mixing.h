// SPDX-License-Identifier: Apache-2.0
//
// From the 2n + n*n mixing values of one row to its weights (kernels/op/streams.h, StreamMix), in
// double. Pure; any thread.
#pragma once

#include <array>

#include "kernels/op/streams.h"

namespace weir::kernels::ref {

struct Mixing {
  std::array<double, kStreamsMax> pre;
  std::array<double, kStreamsMax> post;
  std::array<double, kStreamsMax * kStreamsMax> comb;  // [source * n + destination]
};

// `value` is already scaled and shifted: m * scale + base.
Mixing MixingOf(const double* value, int n, int iterations, double eps);

}  // namespace weir::kernels::ref
