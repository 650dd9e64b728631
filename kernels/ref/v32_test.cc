// SPDX-License-Identifier: Apache-2.0
//
// What V2 and V3.2 do otherwise than V3, one operation at a time, against numbers by hand.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/ref/formats.h"
#include "kernels/ref/ref_fixture_for_test.h"

namespace weir::kernels {
namespace {

class V32Test : public RefFixture {};

TEST_F(V32Test, LayerNormTakesTheMeanAway) {
  const Tensor out = Room(4);
  ops().LayerNorm(
      *stream_, {1, 4, 0, Put(std::vector<float>{1, 3, 5, 7}), Put(std::vector<float>{1, 1, 2, 1}),
                 Put(std::vector<float>{0, 0, 0, 10}), out});
  const float step = 1 / std::sqrt(5.0f);
  const std::vector<float> have = Floats(out, 4);
  const std::vector<float> want = {-3 * step, -step, 2 * step, 10 + 3 * step};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(have[i], want[i], 1e-6);
}

// The rotation pairs i with i + rope / 2; then every output is a signed sum of all inputs.
TEST_F(V32Test, IndexRotateIsARotationAndAHadamardTransform) {
  constexpr int kWidth = 8;
  StepRows rows;
  rows.count = 1;
  rows.position = Put(std::vector<int32_t>{3});
  const std::vector<float> x = Random(kWidth, 7);
  const Tensor at = Put(x);
  ops().IndexRotate(*stream_, {&rows, 1, kWidth, 4, Put(std::vector<float>{0.5f, 0.25f}), at});
  std::vector<double> turned(x.begin(), x.end());
  for (int i = 0; i < 2; ++i) {
    const double angle = 3 * (i == 0 ? 0.5 : 0.25);
    turned[i] = x[i] * std::cos(angle) - x[i + 2] * std::sin(angle);
    turned[i + 2] = x[i] * std::sin(angle) + x[i + 2] * std::cos(angle);
  }
  const std::vector<float> have = Floats(at, kWidth);
  for (unsigned a = 0; a < kWidth; ++a) {
    double sum = 0;
    for (unsigned b = 0; b < kWidth; ++b) {
      sum += std::popcount(a & b) % 2 == 0 ? turned[b] : -turned[b];
    }
    EXPECT_NEAR(have[a], sum / std::sqrt(8.0), 1e-6);
  }
}

TEST_F(V32Test, IndexKeysHaveOneScaleOfAPowerOfTwo) {
  std::vector<float> x(128);
  x[0] = 448 * 3;  // the scale is 4: 2 would not reach
  x[1] = -1;
  x[2] = 0.01f;
  std::vector<std::byte> row(RowBytes(RowFormat::kFp8Block128, 128));
  EXPECT_EQ(row.size(), 132u);
  ref::EncodeRow(RowFormat::kFp8Block128, x.data(), 128, row.data());
  std::vector<float> back(128);
  ref::DecodeRow(RowFormat::kFp8Block128, row.data(), 128, back.data());
  EXPECT_EQ(back[0], 1344 - 64);  // 336 of 320 and 352: to the even code
  EXPECT_EQ(back[1], -1);
  EXPECT_EQ(back[2], 4 * 0x1p-9f);
}

TEST_F(V32Test, SoftmaxGroupsAreRankedByTheirBest) {
  // One input of 1, so that a gate row is its logit: groups of 2.
  const std::vector<float> logit = {3, 3, 4, -9, 1, 1, 0, 0};
  const Tensor expert = Room(3, DType::kI32);
  const Tensor weight = Room(3);
  MoeRouteArgs args;
  args.rows = 1;
  args.experts = 8;
  args.groups = 4;
  args.groups_kept = 2;
  args.choices = 3;
  args.normalise = false;
  args.scale = 16;
  args.x = Put(std::vector<float>{1});
  args.gate = Load(logit, 8, 1);
  args.expert = expert;
  args.weight = weight;
  args.score = RouteScore::kSoftmax;
  ops().MoeRoute(*stream_, args);
  EXPECT_EQ(Ints(expert, 3), (std::vector<int32_t>{2, 0, 1}));
  double total = 0;
  for (const float one : logit) total += std::exp(one);
  const std::vector<float> weights = Floats(weight, 3);
  EXPECT_NEAR(weights[0], 16 * std::exp(4) / total, 1e-5);
  EXPECT_NEAR(weights[1], 16 * std::exp(3) / total, 1e-5);
}

}  // namespace
}  // namespace weir::kernels
