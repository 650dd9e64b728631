// SPDX-License-Identifier: Apache-2.0
//
// What requests of a prefill engine share with each other, end to end through the cores. The fake
// model reads every token of its pages, and its state depends on all of them: a block that is stale,
// or a state of other tokens, changes the answer. Without a state it has to replay from the start.
#include "engine/pair_fixture.h"

namespace weir::engine {
namespace {

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<TokenId> Start(const std::vector<TokenId>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

class PairReuseTest : public testing::TestWithParam<bool> {
 protected:
  Pair::Options Small() const {
    Pair::Options options;
    options.same_arena = GetParam();
    options.reuse = true;
    options.prefill.chunk_rows = 8;
    options.prefill.slots = 4;
    options.decode.slots = 8;
    return options;
  }
  static Pair::Answer Ask(Pair* pair, uint64_t id, const std::vector<TokenId>& prompt,
                          uint32_t count) {
    pair->Reserve(Id(id), prompt, prompt.size(), count);
    pair->Prefill(Id(id), prompt, prompt.size());
    pair->Run();
    pair->Forget(Id(id));
    pair->Run();
    EXPECT_EQ(pair->answer(Id(id)).ids, FakeAnswer(prompt, count));
    return pair->answer(Id(id));
  }
};

TEST_P(PairReuseTest, TheNextTurnGoesOnWhereTheAnswerEnded) {
  for (const size_t length : {24u, 25u, 30u}) {
    Pair pair(Small());
    const auto prompt = Prompt(length);
    const auto answer = Ask(&pair, 1, prompt, 10);
    EXPECT_EQ(answer.cached, 0u);
    const uint64_t before = pair.prefill().state().rows_computed;
    EXPECT_EQ(pair.prefill().state().window_states, 2u) << "behind prompt and answer";
    const auto turn = Joined(Joined(prompt, answer.ids), Prompt(7, 2));
    // The answer's last token was never computed.
    const size_t known = length + answer.ids.size() - 1;
    EXPECT_EQ(Ask(&pair, 2, turn, 10).cached, known / kFakeBlock * kFakeBlock);
    EXPECT_EQ(pair.prefill().state().rows_computed - before, turn.size() - known);
    pair.ExpectIdle();
  }
}

// A state behind the fork is of no use, one before it is: no fork ever sees another's rows.
TEST_P(PairReuseTest, ForksAtEveryOffsetAreRightAndBilledByWholeBlocks) {
  Pair::Options options = Small();
  options.pages = 400;  // nothing is evicted
  Pair pair(options);
  const auto first = Prompt(30);
  Ask(&pair, 1, first, 5);
  for (size_t common = 0; common <= first.size(); ++common) {
    const auto fork = Joined(Start(first, common), Prompt(6, 100 + common));
    const Position whole =
        static_cast<Position>(std::min(common, fork.size() - 1) / kFakeBlock * kFakeBlock);
    EXPECT_EQ(Ask(&pair, 10 + common, fork, 5).cached, whole < 8 ? 0 : whole) << common;
    pair.ExpectIdle();
  }
  // Once more the same, and a part of it: one token at least is computed.
  EXPECT_EQ(Ask(&pair, 2, first, 5).cached, 28u);
  EXPECT_EQ(Ask(&pair, 3, Start(first, 28), 5).cached, 24u);
}

TEST_P(PairReuseTest, ManyAtOnceShareWhatTheFirstComputed) {
  Pair pair(Small());
  const auto first = Prompt(21);
  for (uint64_t i = 1; i <= 12; ++i) {
    const auto prompt = Joined(first, Prompt(i, 50 + i));
    pair.Reserve(Id(i), prompt, prompt.size(), 6);
    pair.Prefill(Id(i), prompt, prompt.size());
  }
  pair.Run();
  for (uint64_t i = 1; i <= 12; ++i) {
    EXPECT_EQ(pair.answer(Id(i)).ids, FakeAnswer(Joined(first, Prompt(i, 50 + i)), 6)) << i;
    pair.Forget(Id(i));
  }
  pair.Run();
  pair.ExpectIdle();
  // All of them end with the same five blocks.
  EXPECT_LT(pair.prefill().state().blocks_shared, 5u + 12 * 4);
}

TEST_P(PairReuseTest, ATightPoolGivesUpWhatIsSharedAndNothingElse) {
  Pair::Options options = Small();
  options.pages = 14;
  options.states = 4;
  options.prefill.window_states = 3;
  Pair pair(options);
  std::vector<TokenId> session = Prompt(9);
  for (uint64_t i = 1; i <= 60; ++i) {
    const bool other = i % 3 == 0;
    if (session.size() > 30) session = Prompt(9, i);
    const auto prompt = other ? Prompt(5 + i % 20, 200 + i) : session;
    const auto answer = Ask(&pair, i, prompt, 4);
    if (!other) session = Joined(prompt, answer.ids);
    pair.ExpectIdle();
  }
}

TEST_P(PairReuseTest, AVoidChunkBehindAHitBeginsAgainBehindIt) {
  for (int at = 0; at < 8; ++at) {
    Pair pair(Small());
    const auto prompt = Prompt(26);
    const auto answer = Ask(&pair, 1, prompt, 10);
    const auto turn = Joined(Joined(prompt, answer.ids), Prompt(17, 2));
    pair.Reserve(Id(2), turn, turn.size(), 6);
    pair.Prefill(Id(2), turn, turn.size());
    for (int i = 0; i < at; ++i) pair.RunOne();
    pair.void_next_step = true;
    pair.Run();
    EXPECT_EQ(pair.answer(Id(2)).ids, FakeAnswer(turn, 6)) << at;
    pair.Forget(Id(2));
    pair.Run();
    pair.ExpectIdle();
  }
}

// However an answer ends, what comes back of it is right, or nothing does.
TEST_P(PairReuseTest, AnAnswerThatEndsAnywhereComesBack) {
  for (uint32_t count = 1; count < 14; ++count) {
    for (const bool stopped : {false, true}) {
      Pair pair(Small());
      const auto prompt = Prompt(22);
      const auto whole = FakeAnswer(prompt, count + 1);
      pair.Reserve(Id(1), prompt, prompt.size(), stopped ? 40 : count, [&](pb::Reserve* m) {
        if (stopped) m->mutable_sampling()->add_stop_tokens(whole[count]);
      });
      pair.Prefill(Id(1), prompt, prompt.size());
      pair.Run();
      pair.Forget(Id(1));
      pair.Run();
      pair.ExpectIdle();
      const auto turn = Joined(Joined(prompt, pair.answer(Id(1)).ids), Prompt(5, 3));
      Ask(&pair, 2, turn, 6);
      pair.ExpectIdle();
    }
  }
}

TEST_P(PairReuseTest, WhatComesBackMayBeLostOnItsWay) {
  for (const Reason reason : {Reason::kCorrupt, Reason::kPeerLost}) {
    Pair pair(Small());
    const auto prompt = Prompt(22);
    pair.Reserve(Id(1), prompt, prompt.size(), 12);
    pair.Prefill(Id(1), prompt, prompt.size());
    pair.RunUntil([&] { return pair.answer(Id(1)).ids.size() >= 6; });
    pair.fetch_result = reason;
    pair.Run();
    pair.fetch_result = Reason::kOk;
    pair.Forget(Id(1));
    pair.Run();
    pair.ExpectIdle();
    Ask(&pair, 2, Joined(Joined(prompt, pair.answer(Id(1)).ids), Prompt(5, 3)), 6);
  }
}

TEST_P(PairReuseTest, NextAttemptsSettleTheBillOnce) {
  Pair pair(Small());
  const auto prompt = Prompt(30);
  Ask(&pair, 1, prompt, 5);
  pair.Reserve(Id(2), prompt, 30, 20);
  pair.Prefill(Id(2), prompt, 30);
  pair.RunUntil([&] { return pair.answer(Id(2)).ids.size() >= 4; });
  EXPECT_EQ(pair.answer(Id(2)).cached, 28u);
  pair.Kill(kDecode);
  const auto sofar = pair.answer(Id(2)).ids;
  const auto again = Joined(prompt, sofar);
  pair.Reserve(Id(2, 2), again, 30, 20 - static_cast<uint32_t>(sofar.size()), nullptr, kDecode2);
  pair.Prefill(Id(2, 2), again, 30, kDecode2);
  pair.Run();
  EXPECT_EQ(Joined(sofar, pair.answer(Id(2, 2)).ids), FakeAnswer(prompt, 20));
  pair.Forget(Id(2, 2));
  pair.Run();
}

TEST_P(PairReuseTest, RoutersHearWhatIsSharedAndGetASnapshotWhenTheyAsk) {
  Pair pair(Small());
  Ask(&pair, 1, Prompt(14), 2);
  pair.Pass(Millis(50));
  size_t added = 0;
  uint64_t number = 0;
  for (const pb::Envelope& m : pair.to_router) {
    if (!m.has_cache_events()) continue;
    added += static_cast<size_t>(m.cache_events().added_size());
    EXPECT_EQ(m.cache_events().number(), ++number);
    EXPECT_FALSE(m.cache_events().snapshot());
  }
  EXPECT_EQ(added, 3u);
  pb::Envelope resync;
  resync.mutable_cache_resync();
  pair.Deliver(kPrefill, kRouter, resync);
  const pb::CacheEvents& snapshot = pair.to_router.back().cache_events();
  EXPECT_TRUE(snapshot.snapshot());
  EXPECT_EQ(snapshot.added_size(), 3);
  EXPECT_EQ(snapshot.number(), number);
}

INSTANTIATE_TEST_SUITE_P(Arenas, PairReuseTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Apart"; });

}  // namespace
}  // namespace weir::engine
