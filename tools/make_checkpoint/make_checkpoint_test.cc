// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "codec/token/tokenizer.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/model/deepseek_v3.h"
#include "kernels/ref/formats.h"
#include "tools/make_checkpoint/fp8_codes.h"
#include "tools/make_checkpoint/tiny_v3.h"

namespace weir::tools {
namespace {

constexpr char kTokenizer[] = "deploy/models/script/tokenizer.json";

TEST(Fp8Codes, RoundToTheNearestAndTiesToEven) {
  for (int code = 0; code < 127; ++code) {
    EXPECT_EQ(E4m3Code(kernels::ref::F8E4m3ToFloat(static_cast<uint8_t>(code))), code);
  }
  EXPECT_EQ(E4m3Code(1e9), 0x7e);
  EXPECT_EQ(E4m3Code(-1.0), 0xb8);
  EXPECT_EQ(E4m3Code(1.0625), 0x38);  // between 1 and 1.125
  EXPECT_EQ(E4m3Code(1.1875), 0x3a);  // between 1.125 and 1.25
}

class MakeCheckpointTest : public ::testing::Test {
 protected:
  MakeCheckpointTest()
      : dir_(std::filesystem::temp_directory_path() / "weir_make_checkpoint_test") {
    std::filesystem::remove_all(dir_);
  }
  ~MakeCheckpointTest() override { std::filesystem::remove_all(dir_); }

  std::string Make(const std::string& name, uint64_t seed) {
    TinyV3Options options;
    options.out = (dir_ / name).string();
    options.tokenizer = kTokenizer;
    options.seed = seed;
    const absl::Status status = MakeTinyV3(options);
    EXPECT_TRUE(status.ok()) << status;
    return options.out;
  }
  std::string Read(const std::string& path) { return *engine::ReadTextFile(path, 1 << 26); }

  const std::filesystem::path dir_;
};

TEST_F(MakeCheckpointTest, TheSeedDecidesEveryByte) {
  const std::string a = Read(Make("a", 1) + "/model.safetensors");
  EXPECT_EQ(a, Read(Make("b", 1) + "/model.safetensors"));
  EXPECT_NE(a, Read(Make("c", 2) + "/model.safetensors"));
  EXPECT_GT(a.size(), 1u << 20);
  EXPECT_LT(a.size(), 4u << 20);
}

// Serves it for a while: logits are sane, the text is varied, printable and ends now and then.
TEST_F(MakeCheckpointTest, TheModelSpeaks) {
  const std::string directory = Make("m", 1);
  engine::TextModelOptions more;
  std::vector<float> logits;
  more.tap = [&](std::string_view what, int, kernels::Stream& stream, const kernels::Tensor& tensor,
                 int rows) {
    if (what != "logits") return;
    logits.resize(static_cast<size_t>(tensor.shape[1]));
    stream.CopyOut(logits.data(), tensor.address, logits.size() * sizeof(float));
  };
  const auto loaded =
      engine::LoadDeepseekV3With(directory, Read(directory + "/config.json"), {}, std::move(more));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const engine::ModelInfo& info = (*loaded)->info();
  const auto tokenizer = codec::Tokenizer::FromFile(directory + "/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ASSERT_EQ(info.vocab, static_cast<uint32_t>((*tokenizer)->vocab().size()));

  constexpr int kPages = 8;
  engine::KvMemory memory;
  std::vector<std::byte> arena(kPages * info.layout.page_bytes(engine::Part::kDecoder));
  memory.part_base[1] = arena.data();
  memory.page_bytes[1] = info.layout.page_bytes(engine::Part::kDecoder);
  memory.page_count[1] = kPages;
  const std::unique_ptr<engine::Model> model = (*loaded)->Instantiate(memory);
  const std::vector<PageId> table = {0, 1, 2, 3, 4, 5, 6, 7};
  engine::SamplingParams sampling;
  sampling.temperature = 1;
  sampling.seed = 3;
  engine::SlotView slot;
  slot.pages[1] = table;
  slot.sampling = &sampling;
  engine::StepPlan plan;
  plan.slots = {&slot, 1};
  engine::StepResult result;
  TokenId token = 0;
  std::set<TokenId> seen;
  std::string text;
  int control = 0;
  for (Position p = 0; p < 400; ++p) {
    plan.Clear();
    plan.step = StepId(p + 1);
    plan.rows.push_back({SlotId(0), engine::RowKind::kVerify, p, 1});
    plan.tokens = {token};
    model->Launch(plan);
    ASSERT_TRUE(model->Collect(plan.step, true, &result));
    token = result.tokens.at(0);
    seen.insert(token);
    text += (*tokenizer)->vocab().BytesOf(token);
    if ((*tokenizer)->vocab().IsAdded(token) && token != info.stop_tokens.at(0)) ++control;
  }
  std::printf("%s\n", text.c_str());
  EXPECT_EQ(control, 0);
  EXPECT_GT(seen.size(), 80u);
  double sum = 0, square = 0;
  int count = 0;
  for (const float logit : logits) {
    if (logit < -8) continue;  // control tokens and stray bytes
    sum += logit;
    square += logit * logit;
    ++count;
  }
  const double deviation = std::sqrt(square / count - sum / count * sum / count);
  EXPECT_GT(deviation, 1);
  EXPECT_LT(deviation, 4);
}

TEST_F(MakeCheckpointTest, NamesTheFileAtFault) {
  TinyV3Options options;
  options.out = (dir_ / "x").string();
  options.tokenizer = "no/such/tokenizer.json";
  EXPECT_NE(MakeTinyV3(options).message().find("no/such/tokenizer.json"), absl::string_view::npos);
  options.tokenizer = kTokenizer;
  options.experts = 7;
  EXPECT_EQ(ParamOf(MakeTinyV3(options)), "n_group");
}

}  // namespace
}  // namespace weir::tools
