// SPDX-License-Identifier: Apache-2.0
//
// V4.1's operations one by one, against sums written out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/ref/access.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/ref_fixture_for_test.h"

namespace weir::kernels {
namespace {

const std::byte* BytesAt(const std::vector<uint8_t>& v) {
  return reinterpret_cast<const std::byte*>(v.data());
}

class V41Test : public RefFixture {
 protected:
  using RefFixture::RefFixture;

  // Rows of one sequence in table row 0, from `first` on.
  StepRows Rows(int32_t first, int count) {
    std::vector<int32_t> position, token;
    for (int i = 0; i < count; ++i) {
      position.push_back(first + i);
      token.push_back(i);
    }
    StepRows rows;
    rows.count = count;
    rows.token = Put(token);
    rows.position = Put(position);
    rows.sequence = Room(count, DType::kI32);
    rows.write_floor = Room(count, DType::kI32);
    rows.visible_from = Room(count, DType::kI32);
    rows.fresh_from = Put(std::vector<int32_t>(static_cast<size_t>(count), first));
    return rows;
  }
  RingKv Ring(RowFormat format, size_t width, int32_t ring_rows) {
    RingKv ring;
    ring.row_bytes = static_cast<int64_t>(RowBytes(format, width));
    ring.ring_rows = ring_rows;
    ring.state_bytes = ring.row_bytes * ring_rows;
    ring.format = format;
    ring.state = Room(1, DType::kI32);
    ring.base = Room(ring.state_bytes).address;
    return ring;
  }
};

class V41VendorTest : public V41Test {
 protected:
  V41VendorTest() : V41Test(Numerics::kVendor) {}
};

TEST_F(V41Test, WeightsOfEveryReleasedStorage) {
  // Bytes of a released shard (model-spec 4.9).
  std::vector<uint8_t> fp8 = {0xd8, 0x71, 0xf2, 0x79, 0x70, 0x69, 0xf0, 0xe5};
  fp8.resize(64 * 33, 0);
  fp8[40 * 33 + 32] = 0x38;  // 1.0 in the last tile
  const std::vector<uint8_t> scales = {0x73, 0x73, 0x73, 0x80};
  HostMatrix host{BytesAt(fp8), DType::kF8E4m3, 64, 33, BytesAt(scales), 32, 32, DType::kF8E8m0};
  const Matrix dense = Load(host);
  EXPECT_EQ(dense.scale_dtype, DType::kF8E8m0);
  std::vector<float> x(33);
  const Tensor out = Room(64);
  const auto column = [&](const Matrix& m, int i) {
    std::fill(x.begin(), x.end(), 0.0f);
    x[static_cast<size_t>(i)] = 1;
    ops().Linear(*stream_, {1, Put(x), m, out});
    return Floats(out, m.rows);
  };
  const std::vector<float> want = {-0.00390625f, 0.03515625f,  -0.0390625f, 0.0703125f,
                                   0.03125f,     0.017578125f, -0.03125f,   -0.0126953125f};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(column(dense, i)[0], want[static_cast<size_t>(i)]);
  EXPECT_EQ(column(dense, 32)[40], 2.0f);

  std::vector<uint8_t> fp4 = {0xa0, 0xa8, 0xec, 0x4a, 0xad, 0xaf, 0x42, 0xaa};
  fp4.resize(2 * 16, 0);
  fp4[16] = 0x72;
  const std::vector<uint8_t> expert_scales = {0x78, 0x7f};
  const Matrix expert =
      Load({BytesAt(fp4), DType::kI8, 2, 32, BytesAt(expert_scales), 1, 32, DType::kF8E8m0});
  x.resize(32);
  const std::vector<float> row = {0,          -0.0078125f, 0,           -0.0078125f,
                                  -0.015625f, -0.03125f,   -0.0078125f, 0.015625f};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(column(expert, i)[0], row[static_cast<size_t>(i)]);
  EXPECT_EQ(column(expert, 0)[1], 1.0f);
  EXPECT_EQ(column(expert, 1)[1], 6.0f);
}

TEST(V41Formats, CodesAndValuesMeet) {
  for (int code = 0; code < 256; ++code) {
    const float value = ref::F8E4m3ToFloat(static_cast<uint8_t>(code));
    if (std::isnan(value)) continue;
    EXPECT_EQ(ref::FloatToF8E4m3(value), code);
  }
  EXPECT_EQ(ref::FloatToF8E4m3(1e9f), 0x7e);
  EXPECT_EQ(ref::FloatToF8E4m3(std::nanf("")) & 0x7f, 0x7f);
  EXPECT_EQ(ref::FloatToF8E4m3(0x1.fp-7f), 0x08);  // rounds up into the normal range
  for (unsigned nibble = 0; nibble < 16; ++nibble) {
    EXPECT_EQ(ref::FloatToE2m1(ref::E2m1ToFloat(nibble)), nibble);
  }
  const std::array<std::array<float, 2>, 7> ties = {
      {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2}, {2.5f, 2}, {3.5f, 4}, {5, 4}}};
  for (const auto& [tie, want] : ties) EXPECT_EQ(ref::E2m1ToFloat(ref::FloatToE2m1(tie)), want);
  EXPECT_EQ(ref::E8m0CeilOf(1.0f), 127);
  EXPECT_EQ(ref::E8m0CeilOf(1.0001f), 128);
  EXPECT_EQ(ref::E8m0ToFloat(0), 0x1p-127f);
  // The check value of a compressed row (model-spec 5.4.2).
  std::vector<float> x = {1, -.26f, .24f, 2.4f, -3, .75f, .1f, 5};
  x.resize(16, 0);
  std::byte row[9];
  ref::EncodeRow(RowFormat::kFp4Block16, x.data(), 16, row);
  EXPECT_EQ(static_cast<int>(row[8]), 0x35);
  ref::DecodeRow(RowFormat::kFp4Block16, row, 16, x.data());
  x.resize(8);
  EXPECT_EQ(x, (std::vector<float>{.8125f, -.40625f, .40625f, 2.4375f, -3.25f, .8125f, 0, 4.875f}));
}

TEST_F(V41Test, StreamsMixCollapseAndExpand) {
  constexpr int kRows = 3, kStreams = 4, kWidth = 10, kAll = kStreams * kWidth;
  const std::vector<float> x = Random(kRows * kAll, 1);
  const std::vector<float> fn = Random(24 * kAll, 2);
  const Tensor pre = Room(kRows * 4), post = Room(kRows * 4), comb = Room(kRows * 16);
  const Tensor streams = Put(x);
  ops().StreamMix(*stream_, {kRows, kStreams, 20, 1e-6f, 1e-20f, streams, Load(fn, 24, kAll),
                             Put(std::vector<float>{.5f, 2, 1}), Put(Random(24, 3)), pre, post,
                             comb});
  const std::vector<float> c = Floats(comb, kRows * 16);
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < 4; ++k) {
      float column = 0, row = 0;
      for (int j = 0; j < 4; ++j) {
        column += c[r * 16 + j * 4 + k];
        row += c[r * 16 + k * 4 + j];
      }
      EXPECT_NEAR(column, 1, 1e-5);  // the loop ends on columns
      EXPECT_NEAR(row, 1, 0.1);
    }
  }
  const Tensor out = Room(kRows * kWidth);
  ops().Collapse(*stream_, {kRows, kStreams, kWidth, streams, pre, out});
  const std::vector<float> y = Random(kRows * kWidth, 4);
  ops().Expand(*stream_, {kRows, kStreams, kWidth, Put(y), post, comb, streams});
  const std::vector<float> p = Floats(pre, kRows * 4), q = Floats(post, kRows * 4);
  const std::vector<float> collapsed = Floats(out, kRows * kWidth);
  const std::vector<float> expanded = Floats(streams, kRows * kAll);
  for (int r = 0; r < kRows; ++r) {
    for (int d = 0; d < kWidth; ++d) {
      float sum = 0;
      for (int k = 0; k < 4; ++k) {
        sum += p[r * 4 + k] * x[r * kAll + k * kWidth + d];
        float want = q[r * 4 + k] * y[r * kWidth + d];
        for (int j = 0; j < 4; ++j) want += c[r * 16 + j * 4 + k] * x[r * kAll + j * kWidth + d];
        EXPECT_NEAR(expanded[r * kAll + k * kWidth + d], want, 1e-5);
      }
      EXPECT_NEAR(collapsed[r * kWidth + d], sum, 1e-5);
    }
  }
}

TEST_F(V41Test, EmbeddingFillsEveryStream) {
  Tensor table = Put(std::vector<float>{1, 2, 3, 4});
  table.shape = {2, 2, 1};
  const StepRows rows = Rows(0, 2);
  const Tensor x = Room(8), pre = Room(4);
  ops().EmbedStreams(*stream_, {&rows, 2, table, x, pre});
  EXPECT_EQ(Floats(x, 8), (std::vector<float>{1, 2, 1, 2, 3, 4, 3, 4}));
  EXPECT_EQ(Floats(pre, 4), (std::vector<float>{1, 0, 1, 0}));
}

TEST_F(V41Test, RouteBySqrtSoftplusWithABiasForImages) {
  const Matrix gate = Load({-2, 0, 1, 3, 25}, 5, 1);
  const Tensor expert = Room(6, DType::kI32), weight = Room(6);
  MoeRouteArgs args{2, 5, 1, 1, 3, false, 1, Put(std::vector<float>{1, 1}), gate,
                    Put(std::vector<float>(5)), expert, weight};
  args.score = RouteScore::kSqrtSoftplus;
  args.image = Put(std::vector<int32_t>{0, 1});
  args.image_bias = Put(std::vector<float>{9, 9, 0, 0, 0});
  ops().MoeRoute(*stream_, args);
  EXPECT_EQ(Ints(expert, 6), (std::vector<int32_t>{4, 3, 2, 1, 0, 4}));
  const std::vector<float> w = Floats(weight, 6);  // check values of model-spec 1.5
  const std::vector<float> want = {5.0f, 1.74602f, 1.145976f, 0.8325546f, 0.3562696f, 5.0f};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(w[i], want[i], 2e-6);
}

TEST_F(V41Test, LimitsClampTheGateFromAboveAndUpOnBothSides) {
  const Tensor gate = Put(std::vector<float>{20, -20, 1, 1});
  ops().Swiglu(*stream_, {4, gate, Put(std::vector<float>{1, 1, 20, -20}), 10});
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  const std::vector<double> want = {silu(10), silu(-20), 10 * silu(1), -10 * silu(1)};
  const std::vector<float> have = Floats(gate, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(have[i], want[i], 1e-5);
}

TEST_F(V41Test, ExpertsTakeTheirWeightBeforeTheLastMatrix) {
  const std::vector<ExpertWeights> slots = {{Load({2}, 1, 1), Load({3}, 1, 1), Load({5}, 1, 1)}};
  const Tensor out = Room(1), sum = Put(std::vector<float>{1});
  ExpertFfnArgs ffn{1, 1, slots, Put(std::vector<float>{1}), Put(std::vector<int32_t>{0}),
                    Put(std::vector<int32_t>{0, 1}), Room(2), out};
  ffn.limit = 1;  // both clamp: silu(1) * 1
  ffn.weight = Put(std::vector<float>{0.5f});
  ops().ExpertFfn(*stream_, ffn);
  ops().MoeCombine(*stream_, {1, 1, 1, Put(std::vector<int32_t>{0}), {}, out, sum});
  EXPECT_NEAR(Floats(sum, 1)[0], 1 + 5 * 0.5 / (1 + std::exp(-1.0)), 1e-6);
}

TEST_F(V41Test, GroupsMeetTheirOwnRows) {
  const std::vector<float> w = Random(6 * 4, 1), x = Random(2 * 2 * 4, 2);
  const Tensor out = Room(12);
  ops().GroupedLinear(*stream_, {2, 2, Put(x), Load(w, 6, 4), out});
  const std::vector<float> y = Floats(out, 12);
  for (int r = 0; r < 2; ++r) {
    for (int o = 0; o < 6; ++o) {
      float want = 0;
      for (int i = 0; i < 4; ++i) want += x[r * 8 + o / 3 * 4 + i] * w[o * 4 + i];
      EXPECT_NEAR(y[r * 6 + o], want, 1e-6);
    }
  }
}

TEST_F(V41Test, RotationIsUndoneByItsInverse) {
  const StepRows rows = Rows(1000, 2);
  const std::vector<float> x = Random(2 * 3 * 8, 1);
  const Tensor q = Put(x), f = Put(RopeFrequencies(4, 10000, std::nullopt));
  ops().RopeQuery(*stream_, {&rows, 3, 4, 4, f, q});
  EXPECT_NE(Floats(q, 48), x);
  ops().RopeQuery(*stream_, {&rows, 3, 4, 4, f, q, true});
  const std::vector<float> back = Floats(q, 48);
  for (size_t i = 0; i < 48; ++i) EXPECT_NEAR(back[i], x[i], 1e-6);
}

TEST_F(V41Test, EngramGathersRowsAndGatesThem) {
  std::vector<uint8_t> codes(2 * 64, 0x38);
  codes[64] = 0xc0;  // -2
  const std::vector<uint8_t> scales = {127, 128, 129, 126};
  const Table table = *backend_->MapTable(
      {BytesAt(codes), DType::kF8E4m3, 2, 64, BytesAt(scales), 1, 32, DType::kF8E8m0});
  const Tensor out = Room(128);
  ops().EngramGather(*stream_, {1, 2, Put(std::vector<int32_t>{1, 0}), table, out});
  const std::vector<float> y = Floats(out, 128);
  EXPECT_EQ((std::vector<float>{y[0], y[1], y[32], y[64], y[96]}),
            (std::vector<float>{-8, 4, 0.5f, 1, 2}));

  StepRows rows = Rows(0, 2);
  rows.image = Put(std::vector<int32_t>{0, 1});
  const Tensor x = Put(std::vector<float>{3, 4, -3, -4, 3, 4, -3, -4});
  const std::vector<float> kv = {6, 8, 6, 8, 1, -1, 6, 8, 6, 8, 1, -1};  // two keys, then the value
  ops().EngramGate(*stream_, {&rows, 2, 2, 1e-20f, Put(kv), Put(std::vector<float>{2, 2, 2, 2}),
                              Put(std::vector<float>{1, 1, 1, 1}), x});
  // dot = 2 * (18 + 32) / (sqrt(12.5) * sqrt(50)) / sqrt(2)
  const double root = std::sqrt(100 / std::sqrt(12.5 * 50 * 2));
  const double up = 1 / (1 + std::exp(-root)), down = 1 / (1 + std::exp(root));
  const std::vector<double> want = {3 + up, 4 - up, -3 + down, -4 - down, 3, 4, -3, -4};
  const std::vector<float> have = Floats(x, 8);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(have[i], want[i], 1e-6);
}

TEST_F(V41Test, PairsPoolPerChannel) {
  const StepRows rows = Rows(4, 3);
  const std::vector<float> kv = {1, 2, 3, 4, 5, 6}, gate = {0, 1, 2, 3, 0, 0};
  const RingKv none = Ring(RowFormat::kF32, 2, 2);
  const Tensor latent = Room(6);
  ops().CompressPair(*stream_, {&rows, 2, 0, Put(kv), Put(gate), none, none,
                                Put(std::vector<float>{1, 1}), latent});
  const double share = 1 / (1 + std::exp(-2.0));  // of position 5, in both channels
  const double a = 1 + 2 * share, b = 2 + 2 * share;
  const double rms = std::sqrt((a * a + b * b) / 2);
  const std::vector<float> have = Floats(latent, 6);
  const std::vector<double> want = {0, 0, a / rms, b / rms, 0, 0};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(have[i], want[i], 1e-6);
}

TEST_F(V41Test, AttentionCountsASinkAndWhatIsVisible) {
  StepRows rows = Rows(2, 1);
  rows.visible_from = Put(std::vector<int32_t>{1});
  RingKv ring = Ring(RowFormat::kF32, 2, 4);
  const StepRows before = Rows(0, 2);
  ops().RingWrite(*stream_, {&before, Put(std::vector<float>{9, 9, 1, 0}), ring});
  SparseAttentionArgs args;
  args.rows = &rows;
  args.heads = 1;
  args.width = 2;
  args.window = 8;
  args.select = 2;
  args.scale = 0.5f;
  args.q = Put(std::vector<float>{2, 2});
  args.fresh = Put(std::vector<float>{0, 3});
  args.ring = ring;
  args.entries.base = Put(std::vector<float>{5, 5, 1, 1}).address;
  args.entries.page_tokens = 2;
  args.entries.page_bytes = 16;
  args.entries.row_bytes = 8;
  args.entries.format = RowFormat::kF32;
  args.entries.table = Room(1, DType::kI32);
  args.selected = Put(std::vector<int32_t>{1, -1});
  args.sink = Put(std::vector<float>{0.25f});
  args.scratch = Room(10 * 2);
  args.out = Room(2);
  ops().SparseAttention(*stream_, args);
  const double a = std::exp(1.0), b = std::exp(3.0), c = std::exp(2.0);  // (1,0), (0,3), (1,1)
  const double total = a + b + c + std::exp(0.25);
  const std::vector<float> out = Floats(args.out, 2);
  EXPECT_NEAR(out[0], (a + c) / total, 1e-6);
  EXPECT_NEAR(out[1], (3 * b + c) / total, 1e-6);
}

TEST_F(V41VendorTest, RoundsProductsAndActivations) {
  std::vector<uint8_t> codes(32, 0x38);
  const std::vector<uint8_t> scale = {127};
  const Matrix ones =
      Load({BytesAt(codes), DType::kF8E4m3, 1, 32, BytesAt(scale), 32, 32, DType::kF8E8m0});
  std::vector<float> x(32);
  x[0] = 400;
  x[1] = 3.3f;
  const Tensor out = Room(1);
  ops().Linear(*stream_, {1, Put(x), ones, out});
  EXPECT_EQ(Floats(out, 1)[0], 388);  // scale 1: 384 + 3.25, then BF16
  const Matrix plain = Load(std::vector<float>(32, 1.0f), 1, 32);
  ops().Linear(*stream_, {1, Put(x), plain, out});
  EXPECT_EQ(Floats(out, 1)[0], 404);
  ops().Linear(*stream_, {1, Put(x), plain, out, true});
  EXPECT_EQ(Floats(out, 1)[0], 403.3f);
}

}  // namespace
}  // namespace weir::kernels
