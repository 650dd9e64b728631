// SPDX-License-Identifier: Apache-2.0
//
// The small V4.1 checkpoint that deploy/run serves: the seed decides it, and it speaks.
#include "tools/make_checkpoint/tiny_v41.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "codec/token/tokenizer.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/model/deepseek_v41.h"
#include "tests/golden/model_rig.h"

namespace weir::engine {
namespace {

constexpr char kSource[] = "deploy/models/tiny-v41";

class TinyV41Test : public ::testing::Test {
 protected:
  TinyV41Test() : dir_(std::filesystem::temp_directory_path() / "weir_tiny_v41_test") {
    std::filesystem::remove_all(dir_);
  }
  ~TinyV41Test() override { std::filesystem::remove_all(dir_); }

  std::string Make(const std::string& name, uint64_t seed) {
    tools::TinyV41Options options;
    options.out = (dir_ / name).string();
    options.tokenizer = std::string(kSource) + "/tokenizer.json";
    options.seed = seed;
    const absl::Status status = tools::MakeTinyV41(options);
    EXPECT_TRUE(status.ok()) << status;
    return options.out;
  }
  static std::string WeightsOf(const std::string& directory) {
    return *ReadTextFile(directory + "/model.safetensors", size_t{1} << 26);
  }

  const std::filesystem::path dir_;
};

TEST_F(TinyV41Test, TheSeedDecidesEveryByte) {
  const std::string a = WeightsOf(Make("a", 1));
  EXPECT_EQ(a, WeightsOf(Make("b", 1)));
  EXPECT_NE(a, WeightsOf(Make("c", 2)));
  EXPECT_LT(a.size(), size_t{8} << 20);
}

// Logits are sane; the text is varied and has no control token but the end.
TEST_F(TinyV41Test, TheModelSpeaks) {
  ModelRig::Options options;
  options.directory = Make("m", 1);
  options.numerics = "native";
  options.isa = "best";
  options.load = &LoadDeepseekV41With;
  ModelRig rig(options);
  const auto tokenizer = codec::Tokenizer::FromFile(options.directory + "/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const codec::Vocab& vocab = (*tokenizer)->vocab();
  ASSERT_EQ(rig.info().vocab, static_cast<uint32_t>(vocab.size()));
  rig.sampling(0).temperature = 1;
  rig.sampling(0).seed = 3;

  std::vector<TokenId> prompt;
  (*tokenizer)->Encode("Please tell me about the river and the mill.", &prompt);
  TokenId token = rig.Prefill(0, prompt, 16);
  std::set<TokenId> seen;
  std::string text;
  const auto end = static_cast<Position>(prompt.size() + 300);  // beyond one window
  for (auto p = static_cast<Position>(prompt.size()); p < end; ++p) {
    EXPECT_TRUE(!vocab.IsAdded(token) || token == vocab.eos()) << vocab.BytesOf(token);
    seen.insert(token);
    text += vocab.BytesOf(token);
    token = rig.Decode(0, p, token);
  }
  std::printf("%s\n", text.c_str());
  EXPECT_GT(seen.size(), 80u);
  double sum = 0, square = 0;
  int count = 0;
  for (const float logit : rig.logits(0, end - 1)) {
    if (logit < -8) continue;  // control tokens and stray bytes
    sum += logit;
    square += logit * logit;
    ++count;
  }
  const double deviation = std::sqrt(square / count - sum / count * sum / count);
  EXPECT_GT(deviation, 1);
  EXPECT_LT(deviation, 4);
}

}  // namespace
}  // namespace weir::engine
