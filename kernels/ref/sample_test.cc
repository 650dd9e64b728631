// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "kernels/op/ops.h"
#include "kernels/ref/ref_backend.h"

namespace weir::kernels {
namespace {

// Samples rows over the same logits.
class SampleTest : public ::testing::Test {
 protected:
  ~SampleTest() override {
    for (const DeviceAddress at : taken_) backend_->Free(at);
  }

  template <class T>
  Tensor Put(const std::vector<T>& values, DType dtype) {
    const DeviceAddress at = *backend_->Allocate(values.size() * sizeof(T));
    taken_.push_back(at);
    stream_->CopyIn(at, values.data(), values.size() * sizeof(T));
    return {at, dtype, {static_cast<int64_t>(values.size()), 1, 1}};
  }

  std::vector<SampleOut> Sample(const std::vector<float>& logits,
                                const std::vector<SampleRow>& rows) {
    std::vector<float> all;
    for (size_t r = 0; r < rows.size(); ++r) all.insert(all.end(), logits.begin(), logits.end());
    const auto vocab = static_cast<int>(logits.size());
    SampleArgs args;
    args.rows = static_cast<int>(rows.size());
    args.vocab = vocab;
    args.logits = Put(all, DType::kF32);
    args.params = Put(rows, DType::kU8);
    args.bias_token = Put(bias_token_, DType::kI32);
    args.bias_value = Put(bias_value_, DType::kF32);
    args.history = Put(history_, DType::kI32);
    args.adjusted = Put(logits, DType::kF32);
    args.order = Put(std::vector<int32_t>(logits.size()), DType::kI32);
    args.counts = Put(std::vector<int32_t>(logits.size()), DType::kI32);
    args.out = Put(std::vector<SampleOut>(rows.size()), DType::kU8);
    backend_->ops().Sample(*stream_, args);
    std::vector<SampleOut> out(rows.size());
    stream_->CopyOut(out.data(), args.out.address, out.size() * sizeof(SampleOut));
    return out;
  }
  int32_t One(const std::vector<float>& logits, const SampleRow& row) {
    return Sample(logits, {row})[0].token;
  }
  // How often each token is drawn over many positions.
  std::map<int32_t, double> Shares(const std::vector<float>& logits, SampleRow row, int draws) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < draws; ++i) {
      row.position = i;
      rows.push_back(row);
    }
    std::map<int32_t, double> shares;
    for (const SampleOut& out : Sample(logits, rows)) shares[out.token] += 1.0 / draws;
    return shares;
  }

  std::unique_ptr<Backend> backend_ = ref::NewRefBackend();
  std::unique_ptr<Stream> stream_ = backend_->NewStream();
  std::vector<DeviceAddress> taken_;
  std::vector<int32_t> bias_token_ = {0};
  std::vector<float> bias_value_ = {0};
  std::vector<int32_t> history_ = {0};
};

const std::vector<float> kLogits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                    std::log(0.05f)};

TEST_F(SampleTest, GreedyTakesTheLowestOfEqualTokens) {
  EXPECT_EQ(One({1, 3, 3, 2}, {.temperature = 0}), 1);
  EXPECT_EQ(One({-9, -3, -3, -4}, {.temperature = 1e-40f}), 1) << "a temperature of next to nothing";
}

TEST_F(SampleTest, ThereIsNoTokenAmongWhatIsNoNumber) {
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_EQ(One({1, NAN, 3}, {.temperature = temperature, .logprobs = 2}), -1);
    EXPECT_EQ(One({NAN, 2, 3}, {.temperature = temperature}), -1);
    EXPECT_EQ(One({1, INFINITY, 3}, {.temperature = temperature}), -1);
    EXPECT_EQ(One({-INFINITY, -INFINITY}, {.temperature = temperature}), -1);
    EXPECT_EQ(One({-INFINITY, 2}, {.temperature = temperature}), 1) << "a masked token";
  }
}

TEST_F(SampleTest, DrawsFollowTheProbabilities) {
  const auto shares = Shares(kLogits, {.seed = 11}, 20000);
  EXPECT_NEAR(shares.at(0), 0.5, 0.02);
  EXPECT_NEAR(shares.at(1), 0.3, 0.02);
  EXPECT_NEAR(shares.at(3), 0.05, 0.01);
}

TEST_F(SampleTest, FiltersKeepWhatTheySay) {
  EXPECT_EQ(Shares(kLogits, {.seed = 1, .top_k = 2}, 2000).size(), 2u);
  EXPECT_EQ(Shares(kLogits, {.seed = 1, .top_p = 0.75f}, 2000).size(), 2u);
  EXPECT_EQ(Shares(kLogits, {.seed = 1, .top_p = 0.0f}, 200).size(), 1u);
  EXPECT_EQ(Shares(kLogits, {.seed = 1, .min_p = 0.25f}, 2000).size(), 3u);
  const auto both = Shares(kLogits, {.seed = 1, .top_p = 0.9f, .top_k = 3}, 20000);
  EXPECT_EQ(both.size(), 3u);
  EXPECT_NEAR(both.at(0), 0.5 / 0.95, 0.02);
}

TEST_F(SampleTest, ADrawDependsOnSeedAndPositionAlone) {
  const SampleRow row{.seed = 5, .position = 17};
  const int32_t alone = One(kLogits, row);
  std::vector<SampleRow> batch(9, {.seed = 77, .position = 3});
  batch[6] = row;
  EXPECT_EQ(Sample(kLogits, batch)[6].token, alone);
  // A filter that keeps the drawn token does not change the draw: the noise is the token's own.
  SampleRow filtered = row;
  filtered.top_k = 4;
  EXPECT_EQ(One(kLogits, filtered), alone);
}

TEST_F(SampleTest, BiasAndPenaltiesMoveLogits) {
  bias_token_ = {3, 0};
  bias_value_ = {10, -std::numeric_limits<float>::infinity()};
  EXPECT_EQ(One(kLogits, {.temperature = 0, .bias_begin = 0, .bias_end = 1}), 3);
  EXPECT_EQ(One(kLogits, {.temperature = 0, .bias_begin = 1, .bias_end = 2}), 1);
  history_ = {0, 0, 1, 0};
  const std::vector<float> even = {1.0f, 0.9f, 0.5f, 0.0f};
  SampleRow row{.temperature = 0, .history_begin = 0, .history_end = 4};
  row.frequency_penalty = 0.2f;  // 1 - 0.6, 0.9 - 0.2
  EXPECT_EQ(One(even, row), 1);
  row.frequency_penalty = 0;
  row.presence_penalty = 0.45f;  // 0.55, 0.45, 0.5
  EXPECT_EQ(One(even, row), 0);
  row.presence_penalty = 0;
  row.repetition_penalty = 3;
  EXPECT_EQ(One(even, row), 2);
  row.history_end = 0;
  EXPECT_EQ(One(even, row), 0);
}

TEST_F(SampleTest, LogprobsAreTheModelsOwn) {
  bias_token_ = {3};
  bias_value_ = {10};
  const SampleOut out = Sample(kLogits, {{.temperature = 0, .bias_end = 1, .logprobs = 2}})[0];
  EXPECT_EQ(out.token, 3);
  EXPECT_NEAR(out.logprob, std::log(0.05), 1e-5);
  ASSERT_EQ(out.top_count, 2);
  EXPECT_EQ(out.top_token[1], 1);
  EXPECT_NEAR(out.top_logprob[0], std::log(0.5), 1e-5);
}

TEST_F(SampleTest, VerifyAcceptsTheAgreedHeadAndOneMore) {
  // Group 0: drafts 7, 8 where 7 is agreed; group 1: no drafts; group 2: all agreed; group 3: a
  // later draft that agrees does not revive the group.
  const std::vector<SampleRow> rows = {
      {.draft = -1, .group = 0}, {.draft = 7, .group = 0},  {.draft = 8, .group = 0},
      {.draft = -1, .group = 1}, {.draft = -1, .group = 2}, {.draft = 4, .group = 2},
      {.draft = -1, .group = 3}, {.draft = 1, .group = 3},  {.draft = 6, .group = 3}};
  std::vector<SampleOut> out(rows.size());
  const int32_t tokens[] = {7, 9, 8, 5, 4, 2, 3, 6, 6};
  for (size_t i = 0; i < out.size(); ++i) out[i].token = tokens[i];
  VerifyArgs args{static_cast<int>(rows.size()), 4, Put(rows, DType::kU8), Put(out, DType::kU8),
                  Put(std::vector<int32_t>(4), DType::kI32)};
  backend_->ops().Verify(*stream_, args);
  std::vector<int32_t> accepted(4);
  stream_->CopyOut(accepted.data(), args.accepted.address, 16);
  EXPECT_EQ(accepted, (std::vector<int32_t>{2, 1, 2, 1}));
}

}  // namespace
}  // namespace weir::kernels
