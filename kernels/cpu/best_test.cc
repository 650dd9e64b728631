// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/best.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/stdx/random.h"

namespace weir::kernels::cpu {
namespace {

std::vector<int32_t> Sorted(const std::vector<float>& score, size_t keep) {
  std::vector<int32_t> order(score.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
  });
  order.resize(std::min(keep, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(KeepBest, KeepsWhatASortKeeps) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (uint64_t trial = 0; trial < 60; ++trial) {
    std::vector<float> score(1 + RandomBits(trial, 0, 0) % 500);
    for (size_t i = 0; i < score.size(); ++i) {
      // Few different numbers, so that ties lie across the border; or many.
      const double unit = RandomUnit(trial, 1, i) * 2 - 1;
      score[i] = static_cast<float>(trial % 2 == 0 ? std::round(unit * 3) / 7 : unit * 1e-3);
      if (i % 17 == 3) score[i] = -0.0f;
      if (i % 31 == 5) score[i] = trial % 3 == 0 ? kInfinity : -kInfinity;
    }
    for (const size_t keep : {size_t{0}, size_t{1}, score.size() / 3, score.size() - 1,
                              score.size(), score.size() + 9}) {
      std::vector<int32_t> have(std::max(keep, score.size()));
      have.resize(static_cast<size_t>(KeepBest(score.data(), static_cast<int64_t>(score.size()),
                                               static_cast<int64_t>(keep), have.data())));
      ASSERT_EQ(have, Sorted(score, keep)) << "trial " << trial << ", keep " << keep;
    }
  }
}

}  // namespace
}  // namespace weir::kernels::cpu
