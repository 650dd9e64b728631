// SPDX-License-Identifier: Apache-2.0
//
// V3 and V4.1 with the head, latent and index sizes of the releases, against outside truth
// (tests/golden/kernel_sized/PROVENANCE.md). tests/acceptance/numbers-02 makes the checkpoints and
// runs this with WEIR_CHECKPOINTS naming their folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "engine/model/deepseek_v41.h"
#include "nlohmann/json.hpp"
#include "tests/golden/model_rig.h"

namespace weir::engine {
namespace {

struct Sized {
  const char* name;
  Loader load;
  const char* isa;  // of the cpu backend; empty: ref
};

class KernelSized : public ::testing::TestWithParam<Sized> {};

TEST_P(KernelSized, MatchesTheReference) {
  const char* root = std::getenv("WEIR_CHECKPOINTS");
  if (root == nullptr) GTEST_SKIP() << "WEIR_CHECKPOINTS names no folder";
  const auto golden = nlohmann::json::parse(std::ifstream("tests/golden/kernel_sized/golden.json"))
                          .at(GetParam().name);
  std::vector<TokenId> prompt = golden.at("prompt");

  ModelRig::Options options;
  options.directory = std::string(root) + "/" + GetParam().name;
  options.load = GetParam().load;
  options.isa = GetParam().isa;
  ModelRig rig(options);
  // A chunk ends wherever the golden has logits.
  const auto chunk = golden.at("chunk").get<size_t>();
  const auto stride = golden.at("stride").get<size_t>();
  rig.Prefill(0, prompt, chunk);
  double worst = 0;
  int compared = 0;
  for (const auto& [position, want] : golden.at("logits").items()) {
    const auto p = static_cast<Position>(std::stoi(position));
    if (p >= prompt.size()) continue;
    const Row& have = rig.logits(0, p);
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::abs(have.at(i * stride) - want[i].get<double>()));
    }
    const auto best = std::max_element(have.begin(), have.end()) - have.begin();
    EXPECT_EQ(best, golden.at("best").at(position).get<int64_t>()) << "position " << p;
    ++compared;
  }
  EXPECT_GT(compared, 0);
  std::printf("%s%s: %d rows, logits differ by at most %.2e\n", GetParam().name,
              *GetParam().isa != 0 ? " on cpu" : "", compared, worst);
  EXPECT_LT(worst, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Families, KernelSized,
                         ::testing::Values(Sized{"v3", &LoadDeepseekV3With, "best"},
                                           Sized{"v41", &LoadDeepseekV41With, "best"},
                                           Sized{"v3", &LoadDeepseekV3With, ""},
                                           Sized{"v41", &LoadDeepseekV41With, ""}));

}  // namespace
}  // namespace weir::engine
