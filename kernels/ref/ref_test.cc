// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/ref/access.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/ref_fixture_for_test.h"

namespace weir::kernels {
namespace {

using RefTest = RefFixture;

TEST_F(RefTest, LinearIsTheSumInEveryStorage) {
  const int64_t rows = 37;
  const int64_t cols = 21;
  const std::vector<float> x = Random(2 * cols, 1);
  std::vector<uint8_t> codes(rows * cols);
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<uint8_t>(i * 7 % 120 + (i % 2) * 128);
  const std::vector<float> scales = {0.5f, 0.25f, 3.0f, 0.01f, 1.0f, 2.0f};  // blocks of 16 x 16
  const Matrix fp8 = Load({reinterpret_cast<const std::byte*>(codes.data()), DType::kF8E4m3, rows,
                           cols, reinterpret_cast<const std::byte*>(scales.data()), 16, 16});
  const Tensor out = Room(2 * rows);
  ops().Linear(*stream_, {2, Put(x), fp8, out});
  const std::vector<float> y = Floats(out, 2 * rows);
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t o = 0; o < rows; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < cols; ++i) {
        sum += double{x[r * cols + i]} * ref::F8E4m3ToFloat(codes[o * cols + i]) *
               scales[o / 16 * 2 + i / 16];
      }
      EXPECT_NEAR(y[r * rows + o], sum, 1e-4 * (1 + std::abs(sum)));
    }
  }
}

TEST(Formats, RoundAsTheyShould) {
  EXPECT_EQ(ref::F8E4m3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(ref::F8E4m3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(ref::F8E4m3ToFloat(0xb8), -1.0f);
  EXPECT_TRUE(std::isnan(ref::F8E4m3ToFloat(0x7f)));
  EXPECT_EQ(ref::FloatToBf16(1.00390625f), 0x3f80);  // a tie goes to the even code
  EXPECT_EQ(ref::FloatToBf16(1.01171875f), 0x3f82);
  EXPECT_TRUE(std::isnan(ref::Bf16ToFloat(ref::FloatToBf16(std::nanf("")))));
}

// Values of the released V3 configuration (model-spec 1.2).
TEST(Rope, YarnFrequenciesAreTheReleasedOnes) {
  const std::vector<float> f = RopeFrequencies(64, 10000, Yarn{40, 4096, 32, 1});
  EXPECT_NEAR(f[15], 0.00833451, 1e-8);
  EXPECT_NEAR(f[16], 0.0055, 1e-8);
  EXPECT_NEAR(f[20], 7.90569e-4, 1e-9);
  EXPECT_NEAR(f[31], 3.3338e-6, 1e-10);
  EXPECT_NEAR(RopeFrequencies(64, 10000, std::nullopt)[16], 0.01, 1e-9);
}

TEST_F(RefTest, RouteLimitsGroupsAndBreaksTiesLow) {
  // One input, so that a logit is the gate weight. Groups of two; two groups are kept.
  const Matrix gate = Load({0, 0, 2, -2, 1, 1, 0, 0}, 8, 1);
  const Tensor x = Put(std::vector<float>{1});
  const Tensor expert = Room(3, DType::kI32);
  const Tensor weight = Room(3);
  MoeRouteArgs args{1, 8, 4, 2, 3, true, 2.5f, x, gate, Put(std::vector<float>(8)), expert, weight};
  ops().MoeRoute(*stream_, args);
  // Group scores: 1.0, 1.0, 1.46, 1.0: group 2 and, among the equals, group 0.
  EXPECT_EQ(Ints(expert, 3), (std::vector<int32_t>{4, 5, 0}));
  double total = 0;
  for (const float w : Floats(weight, 3)) total += w;
  EXPECT_NEAR(total, 2.5, 1e-6);
  // Negative biases must not let an excluded group in.
  args.bias = Put(std::vector<float>{-9, -9, -9, -9, -1, -1, -9, -9});
  args.groups_kept = 1;
  args.choices = 2;
  ops().MoeRoute(*stream_, args);
  EXPECT_EQ(Ints(expert, 2), (std::vector<int32_t>{4, 5}));
}

TEST_F(RefTest, ExpertsBySlotEqualExpertsByHand) {
  constexpr int kRows = 5, kChoices = 2, kExperts = 3, kWidth = 6, kFfn = 4;
  std::vector<std::vector<float>> gate, up, down;
  for (int e = 0; e < kExperts; ++e) {
    gate.push_back(Random(kFfn * kWidth, 10 + e));
    up.push_back(Random(kFfn * kWidth, 20 + e));
    down.push_back(Random(kFfn * kWidth, 30 + e));
  }
  const std::vector<int32_t> slot_of = {2, 0, 1};
  std::vector<ExpertWeights> slots(kExperts);
  for (int e = 0; e < kExperts; ++e) {
    slots[slot_of[e]] = {Load(gate[e], kFfn, kWidth), Load(up[e], kFfn, kWidth),
                         Load(down[e], kWidth, kFfn)};
  }
  const std::vector<float> x = Random(kRows * kWidth, 1);
  const std::vector<int32_t> expert = {0, 1, 2, 0, 1, 2, 2, 1, 0, 2};
  const std::vector<float> weight = Random(kRows * kChoices, 2);
  const Tensor entry = Room(kRows * kChoices, DType::kI32);
  const Tensor begin = Room(kExperts + 1, DType::kI32);
  ops().MoePermute(*stream_, {kRows, kChoices, kExperts, Put(expert), Put(slot_of), entry, begin});
  EXPECT_EQ(Ints(begin, kExperts + 1), (std::vector<int32_t>{0, 3, 7, 10}));
  const Tensor out = Room(kRows * kChoices * kWidth);
  ops().ExpertFfn(*stream_, {kRows * kChoices, kChoices, slots, Put(x), entry, begin,
                             Room(2 * kRows * kChoices * kFfn), out});
  const Tensor sum = Room(kRows * kWidth);
  ops().MoeCombine(*stream_, {kRows, kChoices, kWidth, Put(expert), Put(weight), out, sum});
  const std::vector<float> y = Floats(sum, kRows * kWidth);
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kWidth; ++o) {
      double want = 0;
      for (int k = 0; k < kChoices; ++k) {
        const int e = expert[r * kChoices + k];
        for (int f = 0; f < kFfn; ++f) {
          double g = 0, u = 0;
          for (int i = 0; i < kWidth; ++i) {
            g += double{gate[e][f * kWidth + i]} * x[r * kWidth + i];
            u += double{up[e][f * kWidth + i]} * x[r * kWidth + i];
          }
          want += weight[r * kChoices + k] * down[e][o * kFfn + f] * g / (1 + std::exp(-g)) * u;
        }
      }
      EXPECT_NEAR(y[r * kWidth + o], want, 1e-5);
    }
  }
}

TEST(GuardDeathTest, TouchingATensorOutsideAKernelFaults) {
  const std::unique_ptr<Backend> backend = ref::NewRefBackend(ref::Guard::kOn);
  const DeviceAddress at = *backend->Allocate(64);
  int value = 5;
  const std::unique_ptr<Stream> stream = backend->NewStream();
  stream->CopyIn(at, &value, sizeof(value));
  stream->CopyOut(&value, at, sizeof(value));
  EXPECT_EQ(value, 5);
  EXPECT_DEATH({ value = *reinterpret_cast<volatile int*>(at); }, "");
}

}  // namespace
}  // namespace weir::kernels
