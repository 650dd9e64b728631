// SPDX-License-Identifier: Apache-2.0
//
// V3.2's selected attention against outside truth (tests/golden/v32/PROVENANCE.md), and against
// itself: a row's bits must not depend on chunks. What V3.2 shares with V3 is v3_golden_test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "engine/checkpoint/mapped_file.h"
#include "nlohmann/json.hpp"
#include "tests/golden/model_rig.h"

namespace weir::engine {
namespace {

constexpr char kDirectory[] = "tests/golden/v32";

const nlohmann::json& Case(const std::string& name) {
  static const nlohmann::json kGolden =
      nlohmann::json::parse(std::ifstream(std::string(kDirectory) + "/golden.json"));
  return kGolden.at("cases").at(name);
}
std::vector<TokenId> Tokens(const nlohmann::json& golden, const char* field) {
  return golden.at(field).get<std::vector<TokenId>>();
}

// Every position's logits, one row a step; returns the greedy continuation.
std::vector<TokenId> RunGreedy(ModelRig* rig, const nlohmann::json& golden) {
  const std::vector<TokenId> prompt = Tokens(golden, "prompt");
  std::vector<TokenId> greedy = {rig->Prefill(0, prompt, 1)};
  const size_t steps = golden.at("greedy").size();
  for (size_t i = 0; i < steps; ++i) {
    greedy.push_back(rig->Decode(0, static_cast<Position>(prompt.size() + i), greedy.back()));
  }
  greedy.resize(steps);
  return greedy;
}

struct Distance {
  double most = 0;
  double rms = 0;
};
// Over the positions before `end`: what a golden's own greedy tokens lead to is comparable only
// while the engine chose the same ones.
Distance LogitsDistance(const ModelRig& rig, const nlohmann::json& golden, size_t end) {
  Distance distance;
  double square = 0;
  size_t count = 0;
  for (const auto& [position, want] : golden.at("logits").items()) {
    const auto p = static_cast<Position>(std::stoi(position));
    if (p >= end) continue;
    for (size_t i = 0; i < want.size(); ++i, ++count) {
      const double off = std::abs(rig.logits(0, p).at(i) - want[i].get<double>());
      distance.most = std::max(distance.most, off);
      square += off * off;
    }
  }
  distance.rms = std::sqrt(square / static_cast<double>(count));
  return distance;
}

// The share of what the golden lists by layer and token that the engine chose too.
double Overlap(const ModelRig& rig, const nlohmann::json& golden, const char* what,
               const char* field) {
  int same = 0;
  int all = 0;
  for (const auto& [layer, tokens] : golden.at(field).items()) {
    for (size_t t = 0; t < tokens.size(); ++t) {
      const auto& have = rig.lists.at(what).at(std::stoi(layer)).at(static_cast<int>(t));
      for (const int32_t one : tokens[t].get<std::vector<int32_t>>()) {
        same += static_cast<int>(std::count(have.begin(), have.end(), one));
        ++all;
      }
    }
  }
  return static_cast<double>(same) / all;
}

struct Exact {
  const char* name;
  const char* isa;  // of the cpu backend; empty: ref
};
class SmoothV32 : public ::testing::TestWithParam<Exact> {};

TEST_P(SmoothV32, SmoothMatchesTheReference) {
  const nlohmann::json& golden = Case("text.smooth");
  ModelRig rig({.directory = kDirectory, .isa = GetParam().isa});
  EXPECT_EQ(RunGreedy(&rig, golden), Tokens(golden, "greedy"));
  EXPECT_EQ(Overlap(rig, golden, "experts", "experts"), 1);
  EXPECT_EQ(Overlap(rig, golden, "selected", "topk"), 1);
  const Distance distance = LogitsDistance(rig, golden, 1000);
  std::printf("%s: logits differ by at most %.2e\n", GetParam().name, distance.most);
  EXPECT_LT(distance.most, 5e-5);
}

TEST_P(SmoothV32, ChunksOfAnySize) {
  const std::vector<TokenId> prompt = Tokens(Case("text.smooth"), "prompt");
  ModelRig base({.directory = kDirectory, .numerics = "native", .isa = GetParam().isa});
  base.Prefill(0, prompt, 1);
  for (const size_t chunk : {size_t{7}, size_t{16}, prompt.size()}) {
    ModelRig rig({.directory = kDirectory,
                  .numerics = "native",
                  .isa = GetParam().isa,
                  .threads = 1,
                  .page_seed = chunk});
    rig.Prefill(0, prompt, chunk);
    const auto last = static_cast<Position>(prompt.size() - 1);
    EXPECT_EQ(rig.logits(0, last), base.logits(0, last)) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SmoothV32,
                         ::testing::Values(Exact{"ref", ""}, Exact{"cpu", "best"},
                                           Exact{"scalar", "scalar"}),
                         [](const auto& info) { return std::string(info.param.name); });

// `native` keeps latents in BF16, which the golden does not: overlap and spread are compared.
class NativeV32 : public ::testing::TestWithParam<const char*> {};

TEST_P(NativeV32, ComesCloseToTheReference) {
  const nlohmann::json& golden = Case("text.ideal");
  ModelRig rig({.directory = kDirectory, .numerics = "native", .isa = GetParam()});
  const std::vector<TokenId> prompt = Tokens(golden, "prompt");
  rig.Prefill(0, prompt, 1);
  const double experts = Overlap(rig, golden, "experts", "experts");
  const double selected = Overlap(rig, golden, "selected", "topk");
  const Distance distance = LogitsDistance(rig, golden, prompt.size());
  std::printf("experts %.3f, selected %.3f, logits off by %.2e rms\n", experts, selected,
              distance.rms);
  EXPECT_GE(experts, 0.85);
  EXPECT_GE(selected, 0.85);
  EXPECT_LT(distance.rms, 0.3 * golden.at("logit_std").get<double>());
}

INSTANTIATE_TEST_SUITE_P(Backends, NativeV32, ::testing::Values("", "best"));

// Its residual stays unrounded between sum and norm there, and its activations have scales of
// powers of two: unlike V3, and not done.
TEST(GoldenV32, RefusesVendorNumerics) {
  LoadOptions options;
  options.numerics = "vendor";
  const auto config = ReadTextFile(std::string(kDirectory) + "/config.json", 1 << 20);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(ParamOf(LoadDeepseekV3(kDirectory, *config, options).status()), "numerics");
}

}  // namespace
}  // namespace weir::engine
