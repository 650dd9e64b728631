// SPDX-License-Identifier: Apache-2.0
#include "codec/token/tokenizer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/stdx/random.h"
#include "base/stdx/status.h"
#include "codec/token/parallel.h"
#include "codec/token/scanner.h"
#include "codec/token/tokenizer_cases.h"

namespace weir::codec {
namespace {

constexpr char kScript[] = "deploy/models/script/tokenizer.json";
constexpr char kPlain[] = "codec/token/testdata/plain_bytelevel.json";

std::shared_ptr<const Tokenizer> Load(const char* path) {
  auto tokenizer = Tokenizer::FromFile(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *tokenizer;
}

std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.Encode(text, &ids);
  return ids;
}

TEST(Tokenizer, EqualsTheUsualLibraryIdForId) {
  for (const auto& [path, file] : {std::pair(kScript, "script"), {kPlain, "plain_bytelevel"}}) {
    const auto tokenizer = Load(path);
    const auto cases =
        ReadTokenizerCases("codec/token/testdata/" + std::string(file) + "_cases.txt");
    ASSERT_GT(cases.size(), 100u);
    for (const TokenizerCase& one : cases) {
      EXPECT_EQ(Encode(*tokenizer, one.text), one.ids) << one.text;
      EXPECT_EQ(tokenizer->Decode(one.ids), one.text);
    }
  }
}

TEST(Tokenizer, TextNeverYieldsAControlToken) {
  for (const char* path : {kScript, kPlain}) {
    const auto tokenizer = Load(path);
    for (const auto& [spelling, id] : tokenizer->vocab().added()) {
      for (const TokenId got : Encode(*tokenizer, "x" + spelling + " y")) {
        EXPECT_FALSE(tokenizer->vocab().IsAdded(got)) << spelling;
      }
      EXPECT_EQ(tokenizer->EncodeTrusted(spelling), std::vector<TokenId>{id});
    }
  }
}

TEST(Tokenizer, TrustedTextMixesMarkersAndText) {
  const auto tokenizer = Load(kScript);
  const std::string text = "<think>the weir</think>Hello<｜end▁of▁sentence｜>";
  const auto ids = tokenizer->EncodeTrusted(text);
  EXPECT_EQ(ids.front(), *tokenizer->vocab().FindAdded(kThinkToken));
  EXPECT_EQ(ids.back(), *tokenizer->vocab().eos());
  EXPECT_EQ(tokenizer->Decode(ids), text);
}

TEST(Tokenizer, ArbitraryBytesRoundTrip) {
  Random random(3);
  for (const char* path : {kScript, kPlain}) {
    const auto tokenizer = Load(path);
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (uint64_t n = random.Below(60); n > 0; --n) {
        text.push_back(static_cast<char>(random.Below(256)));
      }
      EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, text)), text);
    }
  }
}

TEST(Tokenizer, LongPiecesAgreeWithShortOnes) {
  const auto tokenizer = Load(kPlain);
  // The plain tokenizer merges within the whole text: 65 bytes take the other algorithm, and the
  // text before a byte that merges with nothing must come out the same.
  const std::string head = "the cat and THE cat and a cat";
  std::string text = head + "\x01";
  const auto expected = Encode(*tokenizer, text);
  while (text.size() < 200) text += "\x01";
  auto got = Encode(*tokenizer, text);
  got.resize(expected.size());
  EXPECT_EQ(got, expected);
}

TEST(Tokenizer, OneHugePieceTakesNoQuadraticTime) {
  const auto tokenizer = Load(kScript);
  const std::string text(1 << 20, 'e');
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, text)), text);
}

TEST(Tokenizer, StopsSoonAfterItHasMoreThanAsked) {
  for (const char* path : {kScript, kPlain}) {
    const auto tokenizer = Load(path);
    std::string text;
    while (text.size() < 1 << 16) text += "the cat and ";
    const auto whole = Encode(*tokenizer, text);
    for (const size_t most : {size_t{0}, size_t{10}, whole.size() - 1}) {
      std::vector<TokenId> some;
      tokenizer->Encode(text, &some, most);
      EXPECT_GT(some.size(), most);
      EXPECT_LE(some.size(), whole.size());
      if (most == 10) {
        EXPECT_LT(some.size(), 4096u) << path;
      }
    }
    std::vector<TokenId> all;
    tokenizer->Encode(text, &all, whole.size());
    EXPECT_EQ(all, whole);
  }
}

TEST(Tokenizer, IdsOnlyShowsNumbers) {
  const auto tokenizer = Tokenizer::IdsOnly(100, 0, 1);
  EXPECT_FALSE(tokenizer->can_encode());
  EXPECT_EQ(tokenizer->Decode({5, 42}), " 5 42");
  EXPECT_EQ(tokenizer->vocab().eos(), 1);
  EXPECT_EQ(tokenizer->vocab().BytesOf(100), "");
  EXPECT_EQ(tokenizer->vocab().BytesOf(-1), "");
}

TEST(Tokenizer, RefusesWhatItCannotDo) {
  const auto refused = [](std::string_view json, std::string_view why) {
    const auto got = Tokenizer::FromJson(json);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(ReasonOf(got.status()), Reason::kBadField);
    EXPECT_NE(std::string(got.status().message()).find(why), std::string::npos) << got.status();
  };
  refused("", "tokenizer.json");
  refused("[]", "model");
  refused("{\"model\": {\"type\": \"WordPiece\"}}", "BPE");
  refused(R"({"model": {"type": "BPE", "vocab": {}, "merges": []}})", "pre_tokenizer");
  refused(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
              "pre_tokenizer": {"type": "ByteLevel", "use_regex": false}})",
          "byte 0");
  refused(R"({"model": {"type": "BPE", "vocab": {"a": 7, "b": 7}, "merges": []},
              "pre_tokenizer": {"type": "ByteLevel", "use_regex": false}})",
          "id 7 of another");
  refused(std::string(100000, '['), "tokenizer.json");
  EXPECT_FALSE(Tokenizer::FromFile("/nonexistent/tokenizer.json").ok());
}

// Every kind of character on either side of every other, and every place tried as a cut.
TEST(Tokenizer, SafeCutsChangeNothing) {
  const auto tokenizer = Load(kScript);
  Random random(12);
  const std::string_view alphabet[] = {"a",  "B",   " ",  "\n", "\r", "1",    "中",   ".",  "\xff",
                                       "é",  "\t",  "かな", "٣",  "—",  "\xe4", "\xb8", "🦀", "\u200d",
                                       "\u0301", "\u3000", "・", "'s"};
  int cuts = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t n = random.Below(14); n > 0; --n) {
      text += alphabet[random.Below(std::size(alphabet))];
    }
    const auto whole = Encode(*tokenizer, text);
    for (size_t at = 1; at < text.size(); ++at) {
      const bool safe = IsSafeCut(text, at);
      EXPECT_EQ(safe, NextSafeCut(text, at) == at);
      if (!safe) continue;
      ++cuts;
      auto parts = Encode(*tokenizer, std::string_view(text).substr(0, at));
      tokenizer->Encode(std::string_view(text).substr(at), &parts);
      ASSERT_EQ(parts, whole) << text << " cut at " << at;
    }
  }
  EXPECT_GT(cuts, 2000);
  EXPECT_EQ(NextSafeCut("", 0), 0u);
  EXPECT_EQ(NextSafeCut("aaaa", 1), 4u);
  EXPECT_EQ(Load(kPlain)->SafeCut("a b c", 1), 5u);
}

TEST(Tokenizer, PartsTogetherAreTheWhole) {
  const auto tokenizer = Load(kScript);
  Random random(6);
  std::string text;
  while (text.size() < 20000) {
    text += random.Chance(0.2) ? "\n" : " ";
    for (uint64_t n = random.Below(9); n > 0; --n) {
      text += random.Chance(0.1) ? "中" : std::string(1, static_cast<char>(32 + random.Below(90)));
    }
  }
  const auto backwards = [](size_t count, absl::FunctionRef<void(size_t)> job) {
    for (size_t i = count; i > 0; --i) job(i - 1);
  };
  const auto at_once = [](size_t count, absl::FunctionRef<void(size_t)> job) {
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (size_t part = next++; part < count; part = next++) job(part);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  for (const auto& loaded : {tokenizer, Load(kPlain)}) {
    const auto whole = Encode(*loaded, text);
    for (const size_t part : {1, 2, 10, 100, 5000, 30000}) {
      std::vector<TokenId> ids = {7};
      EncodeInParallel(*loaded, text, backwards, &ids, part);
      ASSERT_EQ(std::vector<TokenId>(ids.begin() + 1, ids.end()), whole) << part;
      ids.resize(1);
      EncodeInParallel(*loaded, text, at_once, &ids, part);
      ASSERT_EQ(std::vector<TokenId>(ids.begin() + 1, ids.end()), whole) << part;
    }
  }
}

TEST(Scanner, PiecesJoinToTheText) {
  Random random(11);
  const std::string_view alphabet[] = {"a", "B", " ", "\n", "\r", "1", "中", ".", "\xff", "é", "\t"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t n = random.Below(12); n > 0; --n) text += alphabet[random.Below(11)];
    std::string joined;
    PieceScanner scanner(text);
    const char* from = text.data();
    for (const char* end; scanner.Next(std::span(&end, 1)) == 1; from = end) {
      EXPECT_LT(from, end);
      joined.append(from, end);
    }
    EXPECT_EQ(joined, text);
  }
}

// Kana and ideographs stand apart from other text, and the third expression parts them once more.
TEST(Scanner, MarksAndUnassignedCharactersPartKana) {
  const std::vector<std::vector<std::string>> cases = {
      {"フ", "\u3097"}, {"\u3097フ"}, {"フ", "\u3097フ"}, {"\u3097", "\u3098フ", "\u3040"}, {"中\u3099国"},
      {"フ", "゜゠", "ア"}, {"・", "\u3097", "・", "か"}, {" ", "っ", "゛", " ", "中"},
  };
  for (const std::vector<std::string>& pieces : cases) {
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    PieceScanner scanner(text);
    std::vector<std::string> got;
    const char* from = text.data();
    for (const char* end; scanner.Next(std::span(&end, 1)) == 1; from = end) got.emplace_back(from, end);
    EXPECT_EQ(got, pieces);
  }
}

}  // namespace
}  // namespace weir::codec
