// SPDX-License-Identifier: Apache-2.0
//
// The V3 engine against outside truth (tests/golden/v3/PROVENANCE.md), and against itself: a row's
// bits must not depend on chunks, batch, passes, pages, decode or prefill, or where experts lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

#include "nlohmann/json.hpp"
#include "kernels/cpu/isa.h"
#include "tests/golden/model_rig.h"

namespace weir::engine {
namespace {

constexpr char kDirectory[] = "tests/golden/v3";

const nlohmann::json& Golden() {
  static const nlohmann::json kGolden =
      nlohmann::json::parse(std::ifstream(std::string(kDirectory) + "/golden.json"));
  return kGolden;
}
const nlohmann::json& Smooth() { return Golden().at("cases").at("text.smooth"); }
std::vector<TokenId> Prompt() { return Smooth().at("prompt").get<std::vector<TokenId>>(); }
std::vector<TokenId> Greedy() { return Smooth().at("greedy").get<std::vector<TokenId>>(); }

double MaxDifference(const Row& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < b.size(); ++i) worst = std::max(worst, std::abs(a.at(i) - b[i]));
  return worst;
}

// Prefill of the prompt one chunk of `chunk` rows at a time, then greedy decoding.
std::vector<TokenId> RunGreedy(ModelRig* rig, int slot, size_t chunk) {
  std::vector<TokenId> tokens = {rig->Prefill(slot, Prompt(), chunk)};
  for (size_t i = 1; i < Greedy().size(); ++i) {
    tokens.push_back(
        rig->Decode(slot, static_cast<Position>(Prompt().size() + i - 1), tokens.back()));
  }
  return tokens;
}

TEST(GoldenV3, SmoothMatchesTheReference) {
  ModelRig rig({.directory = kDirectory, .guarded = true});
  // One row a step, so that every position's logits are there to compare.
  std::vector<TokenId> tokens = RunGreedy(&rig, 0, 1);
  EXPECT_EQ(tokens, Greedy());
  rig.Decode(0, 56, tokens.back());
  double worst = 0;
  for (const auto& [position, want] : Smooth().at("logits").items()) {
    const Row& have = rig.logits(0, static_cast<Position>(std::stoi(position)));
    worst = std::max(worst, MaxDifference(have, want.get<std::vector<double>>()));
  }
  std::printf("text.smooth: logits differ by at most %.2e\n", worst);
  EXPECT_LT(worst, 5e-5);
  for (const auto& [layer, want] : Smooth().at("experts").items()) {
    for (size_t t = 0; t < want.size(); ++t) {
      EXPECT_EQ(rig.lists.at("experts").at(std::stoi(layer)).at(static_cast<int>(t)),
                want[t].get<std::vector<int32_t>>())
          << "layer " << layer << " token " << t;
    }
  }
  for (const auto& [layer, want] : Smooth().at("layers").items()) {
    for (size_t t = 0; t < want.at("sum").size(); ++t) {
      double sum = 0;
      for (const float x : rig.layers.at(std::stoi(layer)).at(static_cast<int>(t))) sum += x;
      EXPECT_NEAR(sum, want.at("sum")[t].get<double>(), 1e-3);
    }
  }
}

// The same comparison through the CPU backend, at every level of instructions this machine has.
TEST(GoldenV3, SmoothMatchesTheReferenceOnTheCpuBackend) {
  for (const char* isa : {"scalar", "avx2", "avx512", "avx512vnni"}) {
    if (!kernels::cpu::CheckedIsa(isa).ok()) continue;
    ModelRig rig({.directory = kDirectory, .isa = isa});
    std::vector<TokenId> tokens = RunGreedy(&rig, 0, 1);
    EXPECT_EQ(tokens, Greedy()) << isa;
    rig.Decode(0, 56, tokens.back());
    double worst = 0;
    for (const auto& [position, want] : Smooth().at("logits").items()) {
      const Row& have = rig.logits(0, static_cast<Position>(std::stoi(position)));
      worst = std::max(worst, MaxDifference(have, want.get<std::vector<double>>()));
    }
    std::printf("%s: logits differ by at most %.2e\n", isa, worst);
    EXPECT_LT(worst, 5e-5) << isa;
  }
}

// The vendor's roundings decide near ties: overlap and spread are compared, not values.
TEST(GoldenV3, VendorRoundsLikeTheVendor) {
  const nlohmann::json& golden = Golden().at("cases").at("text.vendor");
  const auto prompt = golden.at("prompt").get<std::vector<TokenId>>();
  ModelRig rig({.directory = kDirectory, .numerics = "vendor"});
  for (Position p = 0; p < prompt.size(); ++p) rig.Decode(0, p, prompt[p]);
  double square = 0;
  size_t count = 0;
  for (const auto& [position, want] : golden.at("logits").items()) {
    const auto at = static_cast<Position>(std::stoi(position));
    if (at >= prompt.size()) continue;
    for (size_t i = 0; i < want.size(); ++i, ++count) {
      const double off = rig.logits(0, at).at(i) - want[i].get<double>();
      square += off * off;
    }
  }
  int same = 0;
  int all = 0;
  for (const auto& [layer, want] : golden.at("experts").items()) {
    for (size_t t = 0; t < want.size(); ++t) {
      const auto& have = rig.lists.at("experts").at(std::stoi(layer)).at(static_cast<int>(t));
      for (const int e : want[t].get<std::vector<int>>()) {
        same += static_cast<int>(std::count(have.begin(), have.end(), e));
        ++all;
      }
    }
  }
  const double rms = std::sqrt(square / static_cast<double>(count));
  std::printf("experts %d of %d, logits off by %.3f rms\n", same, all, rms);
  EXPECT_GE(same, all * 0.85);
  EXPECT_LT(rms, 0.3 * golden.at("logit_std").get<double>());
}

// By backend: empty is ref, anything else the cpu backend's level of instructions. What is compared
// with the base runs on another number of threads.
class Invariance : public ::testing::TestWithParam<const char*> {
 protected:
  Invariance() : base_({.directory = kDirectory, .isa = GetParam(), .threads = 1}) {
    greedy_ = RunGreedy(&base_, 0, 1);  // every position as a step of one row
  }
  // Compares bit for bit what `rig` computed for slot `slot` with one row at a time.
  void ExpectSameBits(const ModelRig& rig, int slot) {
    int compared = 0;
    for (Position p = 0; p < Prompt().size() + Greedy().size() - 1; ++p) {
      if (!rig.has_logits(slot, p)) continue;
      EXPECT_EQ(rig.logits(slot, p), base_.logits(0, p)) << "position " << p;
      ++compared;
    }
    EXPECT_GT(compared, 0);
  }

  ModelRig base_;
  std::vector<TokenId> greedy_;
};

TEST_P(Invariance, ChunksOfAnySize) {
  for (const size_t chunk : {2u, 7u, 16u, 45u}) {
    ModelRig rig({.directory = kDirectory, .isa = GetParam(), .page_seed = chunk});
    EXPECT_EQ(RunGreedy(&rig, 0, chunk), greedy_);
    ExpectSameBits(rig, 0);
  }
}

TEST_P(Invariance, DecodeRowsEqualPrefillRows) {
  // The prompt decoded row by row after its first token, as verify groups.
  ModelRig rig({.directory = kDirectory, .isa = GetParam()});
  const std::vector<TokenId> prompt = Prompt();
  for (Position p = 0; p < prompt.size(); ++p) rig.Decode(0, p, prompt[p]);
  ExpectSameBits(rig, 0);
  // And the whole prompt as one verify group: logits of every position at once.
  ModelRig whole({.directory = kDirectory, .isa = GetParam()});
  whole.Run({{0, RowKind::kVerify, 0, prompt}});
  ExpectSameBits(whole, 0);
}

TEST_P(Invariance, PassesOfAnySize) {
  for (const int rows : {1, 3, 44}) {
    ModelRig rig({.directory = kDirectory, .isa = GetParam(), .rows_per_pass = rows});
    EXPECT_EQ(RunGreedy(&rig, 0, 45), greedy_);
    ExpectSameBits(rig, 0);
  }
}

TEST_P(Invariance, MixedBatchesInAnyOrder) {
  const std::vector<TokenId> prompt = Prompt();
  std::vector<TokenId> other(prompt.rbegin(), prompt.rend());
  ModelRig rig({.directory = kDirectory, .isa = GetParam(), .page_seed = 9});
  // Slot 3 decodes while slot 1 prefills, in both orders; slot 3 runs the golden prompt.
  rig.Prefill(3, prompt, 16);
  TokenId token = greedy_[0];
  for (size_t i = 1; i < greedy_.size(); ++i) {
    const auto at = static_cast<Position>(prompt.size() + i - 1);
    ModelRig::Group decode{3, RowKind::kVerify, at, {token}};
    ModelRig::Group prefill{1, RowKind::kPrefill, static_cast<Position>(3 * (i - 1)), {}};
    prefill.tokens.assign(other.begin() + 3 * static_cast<ptrdiff_t>(i - 1),
                          other.begin() + 3 * static_cast<ptrdiff_t>(i));
    const bool first = i % 2 == 0;
    const StepResult& result = first ? rig.Run({decode, prefill}) : rig.Run({prefill, decode});
    ASSERT_EQ(result.accepted.size(), 2u);
    token = result.tokens.at(first ? 0 : 1);
    EXPECT_EQ(token, greedy_[i]);
  }
  ExpectSameBits(rig, 3);
}

TEST_P(Invariance, ExpertsInAnySlot) {
  ExpertMap map = ExpertMap::Identity(2, 8);
  map.slot_of[0] = {3, 1, 7, 0, 2, 6, 5, 4};
  std::reverse(map.slot_of[1].begin(), map.slot_of[1].end());
  ModelRig rig({.directory = kDirectory, .isa = GetParam(), .experts = map});
  EXPECT_EQ(RunGreedy(&rig, 0, 45), greedy_);
  ExpectSameBits(rig, 0);
}

TEST_P(Invariance, DraftsChangeNothingButTheStepCount) {
  for (const bool seeded : {false, true}) {
    ModelRig plain({.directory = kDirectory, .isa = GetParam()});
    ModelRig drafted({.directory = kDirectory, .isa = GetParam()});
    for (ModelRig* rig : {&plain, &drafted}) {
      rig->sampling(0).temperature = seeded ? 0.8f : 0.0f;
      rig->sampling(0).seed = 42;
    }
    const std::vector<TokenId> want = RunGreedy(&plain, 0, 45);
    std::vector<TokenId> have = {drafted.Prefill(0, Prompt(), 45)};
    bool whole = false;
    bool cut = false;
    for (size_t turn = 0; have.size() + 3 < want.size(); ++turn) {
      // Two drafts: right, or right and wrong.
      const size_t n = have.size();
      std::vector<TokenId> input = {have.back(), want[n], want[n + 1]};
      if (turn % 2 == 1) input[2] = (input[2] + 1) % 256;
      const StepResult& result = drafted.Run(
          {{0, RowKind::kVerify, static_cast<Position>(Prompt().size() + n - 1), input}});
      ASSERT_EQ(result.accepted.at(0).count, turn % 2 == 1 ? 2 : 3);
      whole |= turn % 2 == 0;
      cut |= turn % 2 == 1;
      have.insert(have.end(), result.tokens.begin(), result.tokens.end());
    }
    EXPECT_TRUE(whole && cut);
    EXPECT_TRUE(std::equal(have.begin(), have.end(), want.begin()));
  }
}

TEST_P(Invariance, RowsBelowTheWriteFloorLeaveTheStoreAlone) {
  ModelRig rig({.directory = kDirectory, .isa = GetParam()});
  rig.Prefill(0, Prompt(), 45);
  const std::vector<std::byte> before = rig.kv();
  std::vector<TokenId> wrong(20, 5);
  rig.Run({{0, RowKind::kReplay, 10, wrong, false, 30}});
  EXPECT_EQ(rig.kv(), before);
  rig.Run({{0, RowKind::kReplay, 10, wrong, false, 29}});
  EXPECT_NE(rig.kv(), before);
}

INSTANTIATE_TEST_SUITE_P(Backends, Invariance, ::testing::Values("", "best"),
                         [](const auto& info) { return *info.param == 0 ? "ref" : "cpu"; });

TEST(GoldenV3, PenaltiesCountTheAnswerAndItsDrafts) {
  ModelRig rig({.directory = kDirectory});
  const std::vector<TokenId> prompt = Prompt();
  const std::vector<TokenId> greedy = Greedy();
  rig.view(0).prompt_tokens = static_cast<Position>(prompt.size());
  rig.sampling(0).logit_bias = {{greedy[0], 100.0f}};  // always this token ...
  rig.sampling(0).frequency_penalty = 60;              // ... until it came twice
  EXPECT_EQ(rig.Prefill(0, prompt, 45), greedy[0]);
  const std::vector<TokenId> emitted = {greedy[0]};
  rig.view(0).emitted = emitted;
  const StepResult& result =
      rig.Run({{0, RowKind::kVerify, 45, {greedy[0], greedy[0], greedy[0]}}});
  ASSERT_EQ(result.accepted.at(0).count, 2);
  EXPECT_EQ(result.tokens[0], greedy[0]);
  EXPECT_NE(result.tokens[1], greedy[0]);
}

TEST(GoldenV3, MinTokensMaskStopTokens) {
  ModelRig rig({.directory = kDirectory});
  rig.view(0).prompt_tokens = 45;
  rig.sampling(0).logit_bias = {{1, 100.0f}};  // 1 ends the text
  rig.sampling(0).min_tokens = 1;
  EXPECT_EQ(rig.Prefill(0, Prompt(), 45), Greedy()[0]);
  EXPECT_EQ(rig.Decode(0, 45, Greedy()[0]), 1);
}

TEST(GoldenV3, LogprobsComeWithEachAcceptedToken) {
  ModelRig rig({.directory = kDirectory});
  rig.sampling(0).logprobs = true;
  rig.sampling(0).top_logprobs = 3;
  rig.Prefill(0, Prompt(), 45);
  const StepResult& result = rig.Run({{0, RowKind::kVerify, 45, {Greedy()[0], Greedy()[1]}}});
  ASSERT_EQ(result.accepted.at(0).count, 2);
  ASSERT_EQ(result.scores.size(), 2u);
  EXPECT_EQ(result.accepted[0].score_offset, 0);
  ASSERT_EQ(result.scores[1].top.size(), 3u);
  EXPECT_EQ(result.scores[1].top[0].first, Greedy()[2]);
  EXPECT_FLOAT_EQ(result.scores[1].top[0].second, result.scores[1].logprob);
}

TEST(GoldenV3, NativeKvStaysClose) {
  ModelRig rig({.directory = kDirectory, .numerics = "native"});
  EXPECT_EQ(rig.info().layout.stores()[0].row_bytes, (128 + 16) * 2u);
  rig.Prefill(0, Prompt(), 1);
  double square = 0;
  int count = 0;
  for (const auto& [position, want] : Smooth().at("logits").items()) {
    const int p = std::stoi(position);
    if (p >= 45) continue;
    const auto row = want.get<std::vector<double>>();
    for (size_t i = 0; i < row.size(); ++i, ++count) {
      square += std::pow(rig.logits(0, static_cast<Position>(p)).at(i) - row[i], 2);
    }
  }
  const double rms = std::sqrt(square / count);
  std::printf("BF16 KV moves logits by %.2e rms\n", rms);
  EXPECT_LT(rms, 0.05);
}

}  // namespace
}  // namespace weir::engine
