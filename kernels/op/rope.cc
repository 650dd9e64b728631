// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weir::kernels {

std::vector<float> RopeFrequencies(int width, double theta, const std::optional<Yarn>& yarn) {
  const int pairs = width / 2;
  std::vector<float> frequency(pairs);
  for (int i = 0; i < pairs; ++i) {
    // The power is rounded to F32 once: released tables are F32, and a power computed in F32 would
    // drift by 1e-3 of an angle at 64K positions.
    frequency[i] = 1.0f / static_cast<float>(std::pow(theta, 2.0 * i / width));
  }
  if (!yarn) return frequency;
  const auto turns = [&](double n) {
    return width * std::log(yarn->original_positions / (n * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  const double low = std::max(std::floor(turns(yarn->beta_fast)), 0.0);
  const double high = std::min(std::ceil(turns(yarn->beta_slow)), width - 1.0);
  const auto span = static_cast<float>(std::max(high - low, 1e-3));
  for (int i = 0; i < pairs; ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / span, 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    frequency[i] =
        frequency[i] / static_cast<float>(yarn->factor) * (1.0f - keep) + frequency[i] * keep;
  }
  return frequency;
}

}  // namespace weir::kernels
