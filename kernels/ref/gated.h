// SPDX-License-Identifier: Apache-2.0
//
// The gated activation of one hidden value (norm.h, Swiglu). Pure; any thread.
#pragma once

#include <algorithm>
#include <cmath>

namespace weir::kernels::ref {

inline double Gated(double gate, double up, double limit) {
  if (limit > 0) {
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
  }
  return gate / (1.0 + std::exp(-gate)) * up;
}

}  // namespace weir::kernels::ref
