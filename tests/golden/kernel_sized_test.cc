// SPDX-License-Identifier: Apache-2.0
//
// Every family with the head, latent and index sizes of the releases, against outside truth
// (tests/golden/kernel_sized/PROVENANCE.md). tests/acceptance/numbers-02 makes the checkpoints and
// runs this with WEIR_CHECKPOINTS naming their folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/deepseek_v41.h"
#include "nlohmann/json.hpp"
#include "tests/golden/model_rig.h"

namespace weir::engine {
namespace {

struct Sized {
  const char* name;
  Loader load;
  const char* profile;   // of the golden
  const char* numerics;  // of the engine
  const char* isa;       // of the cpu backend; empty: ref
};

void PrintTo(const Sized& sized, std::ostream* out) {
  *out << sized.name << " " << sized.numerics << " on " << (*sized.isa != 0 ? "cpu" : "ref");
}

// Root mean square of how far logits may be off. Where caches are quantised, one FP4 step that
// rounding moves turns selections over: plain F32 arithmetic is off by 1e-4 to 5e-2, a wrong one
// by 0.2 and more.
double ToleranceOf(const Sized& sized) {
  return std::string_view(sized.numerics) == "fp32" ? 1e-4 : 0.1;
}

class KernelSized : public ::testing::TestWithParam<Sized> {};

TEST_P(KernelSized, MatchesTheReference) {
  const Sized& sized = GetParam();
  const char* root = std::getenv("WEIR_CHECKPOINTS");
  if (root == nullptr) GTEST_SKIP() << "WEIR_CHECKPOINTS names no folder";
  const auto golden =
      nlohmann::json::parse(std::ifstream("tests/golden/kernel_sized/golden.json")).at(sized.name);
  const auto prompt = golden.at("prompt").get<std::vector<TokenId>>();

  ModelRig::Options options;
  options.directory = std::string(root) + "/" + sized.name;
  options.load = sized.load;
  options.numerics = sized.numerics;
  options.isa = sized.isa;
  ModelRig rig(options);
  // A chunk ends wherever the golden has logits.
  rig.Prefill(0, prompt, golden.at("chunk").get<size_t>());
  const auto stride = golden.at("stride").get<size_t>();
  const nlohmann::json& want = golden.at(sized.profile);
  const bool fp32 = options.numerics == "fp32";
  double worst = 0;
  double square = 0;
  size_t count = 0;
  for (const auto& [position, row] : want.at("logits").items()) {
    const Row& have = rig.logits(0, static_cast<Position>(std::stoi(position)));
    for (size_t i = 0; i < row.size(); ++i, ++count) {
      const double off = std::abs(have.at(i * stride) - row[i].get<double>());
      worst = std::max(worst, off);
      square += off * off;
    }
    const auto best = std::max_element(have.begin(), have.end()) - have.begin();
    if (fp32) {
      EXPECT_EQ(best, want.at("best").at(position).get<int64_t>()) << position;
    }
  }
  ASSERT_GT(count, 0u);
  const double rms = std::sqrt(square / static_cast<double>(count));
  std::printf("%s: %zu logits differ by %.2e rms, by %.2e at most\n",
              ::testing::PrintToString(sized).c_str(), count, rms, worst);
  EXPECT_LT(rms, ToleranceOf(sized));
  if (fp32) {
    EXPECT_LT(worst, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cpu, KernelSized,
    ::testing::Values(Sized{"v3", &LoadDeepseekV3With, "smooth", "fp32", "best"},
                      Sized{"v41", &LoadDeepseekV41With, "smooth", "fp32", "best"},
                      Sized{"v41", &LoadDeepseekV41With, "ideal", "native", "best"},
                      Sized{"v2", &LoadDeepseekV3With, "smooth", "fp32", "best"},
                      Sized{"v32", &LoadDeepseekV3With, "smooth", "fp32", "best"}));
INSTANTIATE_TEST_SUITE_P(
    Ref, KernelSized,
    ::testing::Values(Sized{"v3", &LoadDeepseekV3With, "smooth", "fp32", ""},
                      Sized{"v41", &LoadDeepseekV41With, "smooth", "fp32", ""},
                      Sized{"v41", &LoadDeepseekV41With, "ideal", "native", ""},
                      Sized{"v2", &LoadDeepseekV3With, "smooth", "fp32", ""},
                      Sized{"v32", &LoadDeepseekV3With, "smooth", "fp32", ""}));

}  // namespace
}  // namespace weir::engine
