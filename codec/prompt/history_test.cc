// SPDX-License-Identifier: Apache-2.0
#include "codec/prompt/history.h"

#include <gtest/gtest.h>

#include "base/stdx/random.h"

namespace weir::codec {
namespace {

using Ids = std::vector<TokenId>;

const Tokenizer& Script() {
  static const auto tokenizer = *Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  return *tokenizer;
}
TokenId Control(std::string_view spelling) { return *Script().vocab().FindAdded(spelling); }

Ids Plain(const Segments& segments) {
  Ids ids;
  EncodeSegments(Script(), segments, &ids);
  return ids;
}

void Turn(std::string_view user, Segments* out) {
  out->Token(Control(kUserToken));
  out->Text(user);
  out->Token(Control(kAssistantToken));
}

std::string Words(Random* random, size_t size) {
  std::string text;
  while (text.size() < size) {
    text += random->Chance(0.1) ? "\n\n" : " ";
    for (uint64_t n = 1 + random->Below(8); n > 0; --n) {
      text.push_back(static_cast<char>('a' + random->Below(26)));
    }
  }
  return text;
}

TEST(PromptHistory, GrowingConversationsGiveTheIdsOfNoHistory) {
  PromptHistory history(8 << 20);
  Random random(4);
  Segments segments;
  segments.Token(Control(kBosToken));
  for (int turn = 0; turn < 12; ++turn) {
    Turn(Words(&random, 10 + random.Below(9000)), &segments);
    const uint64_t encoded = history.counters().encoded_ids;
    Ids ids;
    history.Encode(Script(), segments, "d", &ids);
    ASSERT_EQ(ids, Plain(segments)) << turn;
    Ids again;
    history.Encode(Script(), segments, "d", &again);
    ASSERT_EQ(again, ids);
    if (turn > 6) {
      EXPECT_LT(history.counters().encoded_ids - encoded, ids.size() / 2);
    }
    segments.Text(Words(&random, random.Below(3000)));
    segments.Token(Control(kEosToken));
  }
}

TEST(PromptHistory, GrowingTextIsEncodedFromASafeCut) {
  PromptHistory history(8 << 20);
  Random random(9);
  std::string text;
  for (int i = 0; i < 30; ++i) {
    text += Words(&random, random.Below(2000));
    Segments segments;
    segments.Text(text);
    Ids ids;
    history.Encode(Script(), segments, "", &ids);
    ASSERT_EQ(ids, Plain(segments));
  }
  EXPECT_GT(history.counters().reused_ids, 2 * history.counters().encoded_ids);
}

// The answer "hello" as five letters, which is not how the tokenizer would write it.
TEST(PromptHistory, EmittedIdsAreKept) {
  PromptHistory history(1 << 20);
  Segments segments;
  segments.Token(Control(kBosToken));
  Turn("Please say the word that people say when they meet, and nothing else at all.", &segments);
  for (const bool ended : {true, false}) {
    Ids ids;
    const auto known = history.Encode(Script(), segments, "t", &ids);
    ASSERT_NE(known, nullptr);
    const std::string word = ended ? "hello" : "water";
    Ids answer;
    for (const char c : word) Script().Encode(std::string_view(&c, 1), &answer);
    Ids expected = ids;
    expected.insert(expected.end(), answer.begin(), answer.end());
    expected.push_back(Control(kEosToken));
    if (ended) answer.push_back(Control(kEosToken));
    history.AddAnswer(Script().vocab(), known, answer);

    segments.Text(word);
    segments.Token(Control(kEosToken));
    Turn("And again?", &segments);
    Ids next;
    history.Encode(Script(), segments, "t", &next);
    ASSERT_GT(next.size(), expected.size());
    EXPECT_EQ(Ids(next.begin(), next.begin() + static_cast<ptrdiff_t>(expected.size())), expected);
    EXPECT_NE(next, Plain(segments));
    EXPECT_EQ(Script().Decode(next), Script().Decode(Plain(segments)));
    // Another domain does not see them.
    Ids other;
    history.Encode(Script(), segments, "u", &other);
    EXPECT_EQ(other, Plain(segments));
  }
}

TEST(PromptHistory, TheSameTextIsKeptOnceAndTextsOfOneSizeApart) {
  PromptHistory history(1 << 20);
  std::shared_ptr<const KnownText> before;
  for (const char last : {'a', 'b'}) {
    Segments segments;
    Turn(std::string(300, 'x'), &segments);
    segments.Text(std::string(1, last));
    Ids ids, again;
    const auto known = history.Encode(Script(), segments, "", &ids);
    EXPECT_EQ(ids, Plain(segments));
    EXPECT_NE(known, before);
    EXPECT_EQ(history.Encode(Script(), segments, "", &again), known);
    EXPECT_EQ(again, ids);
    before = known;
  }
}

TEST(PromptHistory, MemoryIsBounded) {
  PromptHistory history(200 << 10);
  Random random(2);
  for (int i = 0; i < 100; ++i) {
    Segments segments;
    Turn(Words(&random, 5000), &segments);
    Ids ids;
    history.Encode(Script(), segments, "", &ids);
    EXPECT_LE(history.bytes(), size_t{200} << 10);
  }
  EXPECT_GT(history.bytes(), size_t{100} << 10);
}

// Random edits at any place, repeats and answers: the text never changes, and without answers
// neither do the ids.
TEST(PromptHistory, AnyOrderOfAnyTexts) {
  Random random(31);
  PromptHistory history(64 << 10);
  std::vector<std::string> turns(1);
  for (int round = 0; round < 400; ++round) {
    const uint64_t at = random.Below(turns.size());
    if (random.Chance(0.3)) turns[at] = Words(&random, random.Below(300));
    if (random.Chance(0.3)) turns.push_back(Words(&random, random.Below(6000)));
    if (random.Chance(0.1)) turns.resize(at + 1);
    Segments segments;
    for (const std::string& turn : turns) Turn(turn, &segments);
    Ids ids;
    history.Encode(Script(), segments, random.Chance(0.5) ? "a" : "b", &ids);
    ASSERT_EQ(ids, Plain(segments));
  }
}

TEST(PromptHistory, TextsBeyondTheLimitAreNotEncodedToTheirEndAndNotKept) {
  PromptHistory history(1 << 20);
  Random random(7);
  Segments segments;
  for (int i = 0; i < 4; ++i) Turn(Words(&random, 20000), &segments);
  const size_t whole = Plain(segments).size();
  Ids ids;
  EXPECT_EQ(history.Encode(Script(), segments, "", &ids, 1000), nullptr);
  EXPECT_GT(ids.size(), 1000u);
  EXPECT_LT(ids.size(), whole / 2);
  EXPECT_EQ(history.bytes(), 0u);
  ids.clear();
  EXPECT_NE(history.Encode(Script(), segments, "", &ids, whole), nullptr);
  EXPECT_EQ(ids, Plain(segments));
}

TEST(PromptHistory, OddTextsAreEncodedAndNotKept) {
  PromptHistory history(1 << 20);
  Segments segments;
  segments.Text(std::string(100, 'x') + "\xFF\x01\x02");
  Ids ids;
  EXPECT_EQ(history.Encode(Script(), segments, "", &ids), nullptr);
  EXPECT_EQ(ids, Plain(segments));
  history.AddAnswer(Script().vocab(), nullptr, ids);
  EXPECT_EQ(history.bytes(), 0u);
}

}  // namespace
}  // namespace weir::codec
