// SPDX-License-Identifier: Apache-2.0
//
// Which tokens share a compressed id, rule by rule, and the whole map of a small vocabulary against
// outside truth (tests/golden/v41).
#include "engine/checkpoint/engram_token_map.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/stdx/bytes.h"
#include "engine/checkpoint/mapped_file.h"

namespace weir::engine {
namespace {

constexpr char kGolden[] = "tests/golden/v41";

std::vector<int32_t> MapOf(const std::vector<std::string>& tokens) {
  std::vector<codec::VocabEntry> entries;
  for (const std::string& bytes : tokens) {
    entries.push_back({static_cast<TokenId>(entries.size()), bytes, false});
  }
  return EngramTokenMap(*codec::Vocab::Create(std::move(entries), {}), tokens.size(), 0);
}

using Map = std::vector<int32_t>;

TEST(EngramTokenMap, CaseMarksWidthAndBlanksDoNotCount) {
  EXPECT_EQ(MapOf({"the", "The", "THE", " the", "the\n", "\u00a0the\u2003"}), Map(6, 0));
  EXPECT_EQ(MapOf({"e", "\u00e9", "e\u0301", "\u00c9", "e\u20dd"}), Map(5, 0));  // Mn, Me
  EXPECT_EQ(MapOf({"\u0915", "\u0915\u093f"}), Map(2, 0));                       // Mc
  EXPECT_EQ(MapOf({"fi", "\ufb01", "\uff46\uff49", "\uff26\uff29"}), Map(4, 0));
  EXPECT_EQ(MapOf({"i", "\u0130", "I"}), Map(3, 0));
  EXPECT_EQ(MapOf({"a b", "a  b", "a\t\r\n b", "a\u3000b"}), Map(4, 0));
  EXPECT_EQ(MapOf({"\uac00", "\u1100\u1161"}), Map(2, 0));
  EXPECT_EQ(MapOf({"the", "thé", "then", "\u00df", "ss"}), (Map{0, 0, 1, 2, 3}));  // no folding
}

TEST(EngramTokenMap, BlanksAloneAreOneSpaceAndOtherEmptyTextsAreThemselves) {
  EXPECT_EQ(MapOf({" ", "\n", "  ", "\r\n\t", "\u00a0"}), Map(5, 0));
  EXPECT_EQ(MapOf({"\v", "\f", "\u2028", "\u0301", "\u0302", " \u0301"}), (Map{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(MapOf({"\u200b", "\u200d", " \u200b"}), (Map{0, 1, 0}));  // not White_Space
}

TEST(EngramTokenMap, TextsWithAReplacementCharacterAreTheirSpelling) {
  EXPECT_EQ(MapOf({"\xef\xbd", "\xef\xbe", "\xEF\xBD", "a\xff", "A\xff"}), (Map{0, 1, 0, 2, 3}));
  EXPECT_EQ(MapOf({"\ufffd", " \ufffd"}), (Map{0, 1}));
  // The spelling of the byte A0 is U+0142, which is also a text.
  EXPECT_EQ(MapOf({"\xa0", "\u0142", "\u0141"}), (Map{0, 0, 0}));
  EXPECT_EQ(MapOf({"\xe2", "\u00e2"}), (Map{0, 1}));  // a spelling keeps its mark
}

TEST(EngramTokenMap, IdsWithoutATokenAreThePadding) {
  const auto vocab = codec::Vocab::Create({{0, "a", false}, {2, "<pad>", true}, {4, "b", false}}, {});
  ASSERT_TRUE(vocab.ok());
  EXPECT_EQ(EngramTokenMap(*vocab, 7, 2), (Map{0, 1, 1, 1, 2, 1, 1}));
  EXPECT_EQ(EngramTokenMap(*vocab, 7, 5), (Map{0, 0, 1, 0, 2, 0, 0}));
}

TEST(EngramTokenMap, LongTextsFit) {
  std::string most = "\u0041";
  for (int i = 0; i < 200; ++i) most += "\ufdfa";  // eighteen characters each
  EXPECT_EQ(MapOf({"x", most, "y"}), (Map{0, 1, 2}));
}

DeepseekV41Config GoldenConfig() {
  return *ParseDeepseekV41Config(
      *ReadTextFile(std::string(kGolden) + "/config.json", kConfigBytesMax));
}

TEST(EngramTokenMap, EqualsOutsideTruth) {
  const auto map = ReadEngramTokenMap(kGolden, GoldenConfig());
  ASSERT_TRUE(map.ok()) << map.status();
  std::istringstream want(*ReadTextFile(std::string(kGolden) + "/token_map.json", 1 << 20));
  want.ignore(1);  // the bracket
  for (size_t id = 0; id < map->size(); ++id) {
    int32_t compressed = -1;
    want >> compressed;
    want.ignore(1);
    ASSERT_EQ((*map)[id], compressed) << "token " << id;
  }
  EXPECT_FALSE(want.fail());
}

TEST(EngramTokenMap, OtherVocabulariesAreRefused) {
  DeepseekV41Config config = GoldenConfig();
  const auto message = [&config](const std::string& directory) {
    return std::string(StdView(ReadEngramTokenMap(directory, config).status().message()));
  };
  EXPECT_NE(message("no/such").find("engram_layer_ids needs the checkpoint's tokenizer.json"),
            std::string::npos);
  EXPECT_NE(message("no/such").find("no/such/tokenizer.json"), std::string::npos);
  config.engram.compressed_vocab = 245;
  EXPECT_EQ(message(kGolden),
            "tests/golden/v41/tokenizer.json: gives 244 compressed ids where "
            "engram_compressed_vocab_size is 245");
  config.vocab = 296;
  EXPECT_EQ(message(kGolden),
            "tests/golden/v41/tokenizer.json: has ids up to 296 where vocab_size is 296");
}

}  // namespace
}  // namespace weir::engine
