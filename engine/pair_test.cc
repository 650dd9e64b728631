// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/planted.h"
#include "engine/pair_fixture.h"

namespace weir::engine {
namespace {

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PairTest : public testing::TestWithParam<bool> {
 protected:
  Pair::Options Small() const {
    Pair::Options options;
    options.same_arena = GetParam();
    options.prefill.chunk_rows = 8;
    options.prefill.slots = 4;
    options.decode.slots = 8;
    return options;
  }
};

TEST_P(PairTest, OneRequestEndToEnd) {
  Pair pair(Small());
  const auto prompt = Prompt(21);
  pair.Reserve(Id(1), prompt, 21, 40);
  pair.Prefill(Id(1), prompt, 21);
  pair.Run();
  EXPECT_EQ(pair.answer(Id(1)).ids, FakeAnswer(prompt, 40));
  EXPECT_EQ(pair.answer(Id(1)).first, 21u);
  EXPECT_EQ(pair.answer(Id(1)).finish, pb::FINISH_REASON_LENGTH);
  EXPECT_EQ(pair.prefill().state().rows_computed, 21u);
  EXPECT_EQ(pair.fetched_pages, GetParam() ? 0u : 6u * 2 + 1) << "each page once";
  EXPECT_EQ(pair.CountToRouter([](const auto& m) { return m.has_prefill_computed(); }), 1);
  pair.Forget(Id(1));
  pair.Run();
  pair.ExpectIdle();
}

TEST_P(PairTest, ManyAtOnceEqualSolo) {
  Pair pair(Small());
  for (uint64_t i = 1; i <= 20; ++i) {
    const auto prompt = Prompt(1 + i * 3 % 17, i);
    pair.Reserve(Id(i), prompt, prompt.size(), 9);
    pair.Prefill(Id(i), prompt, prompt.size());
  }
  pair.Run();
  for (uint64_t i = 1; i <= 20; ++i) {
    EXPECT_EQ(pair.answer(Id(i)).ids, FakeAnswer(Prompt(1 + i * 3 % 17, i), 9)) << i;
    pair.Forget(Id(i));
  }
  pair.Run();
  pair.ExpectIdle();
}

TEST_P(PairTest, PulledWhenAttachedLate) {
  Pair pair(Small());
  const auto prompt = Prompt(30);
  pair.Prefill(Id(1), prompt, 30, InstanceId(0));
  pair.Run();
  EXPECT_TRUE(pair.answer(Id(1)).ids.empty());
  pair.Reserve(Id(1), prompt, 30, 12);
  pair.Attach(Id(1), kDecode);
  pair.Run();
  EXPECT_EQ(pair.answer(Id(1)).ids, FakeAnswer(prompt, 12));
  pair.Forget(Id(1));
  pair.Run();
  pair.ExpectIdle();
}

TEST_P(PairTest, StopTokenEndsAndIsNotEmitted) {
  Pair pair(Small());
  const auto prompt = Prompt(10);
  const auto whole = FakeAnswer(prompt, 20);
  const auto stops = [&](uint32_t min) {
    return [&whole, min](pb::Reserve* m) {
      m->mutable_sampling()->add_stop_tokens(whole[5]);
      m->mutable_sampling()->set_min_tokens(min);
    };
  };
  pair.Reserve(Id(1), prompt, 10, 20, stops(0));
  pair.Prefill(Id(1), prompt, 10);
  pair.Reserve(Id(2), prompt, 10, 20, stops(10));
  pair.Prefill(Id(2), prompt, 10);
  pair.Run();
  EXPECT_EQ(pair.answer(Id(1)).ids, FakeAnswer(prompt, 5));
  EXPECT_EQ(pair.answer(Id(1)).finish, pb::FINISH_REASON_STOP);
  EXPECT_EQ(pair.answer(Id(2)).ids, whole) << "ignored below min_tokens";
}

TEST_P(PairTest, FirstTokenMayEndTheAnswer) {
  Pair pair(Small());
  const auto prompt = Prompt(10);
  pair.Reserve(Id(1), prompt, 10, 1);
  pair.Prefill(Id(1), prompt, 10);
  pair.Reserve(Id(2), prompt, 10, 5, [&](pb::Reserve* m) {
    m->mutable_sampling()->add_stop_tokens(FakeNext(prompt));
  });
  pair.Prefill(Id(2), prompt, 10);
  pair.Run();
  EXPECT_EQ(pair.answer(Id(1)).ids, FakeAnswer(prompt, 1));
  EXPECT_EQ(pair.answer(Id(1)).finish, pb::FINISH_REASON_LENGTH);
  EXPECT_TRUE(pair.answer(Id(2)).ids.empty());
  EXPECT_EQ(pair.answer(Id(2)).finish, pb::FINISH_REASON_STOP);
}

TEST_P(PairTest, VoidStepsLeaveNoTrace) {
  Pair pair(Small());
  const auto prompt = Prompt(25);
  pair.Reserve(Id(1), prompt, 25, 12);
  pair.Prefill(Id(1), prompt, 25);
  for (int i = 0; i < 40; ++i) {
    pair.void_next_step = i % 3 == 0;
    if (!pair.RunOne()) break;
  }
  pair.Run();
  EXPECT_EQ(pair.answer(Id(1)).ids, FakeAnswer(prompt, 12));
  // A void chunk starts its prompt anew: its rows may have overwritten windows that a repeat reads.
  // Apart, reads take turns of their own, so the void one comes a chunk later.
  const uint64_t again = GetParam() ? 8 : 16;
  EXPECT_EQ(pair.prefill().state().rows_computed, 25 + again) << "the chunks before the void one";
}

TEST_P(PairTest, DecodeDiesAtAnyPointAndTheNextAttemptGoesOn) {
  const auto prompt = Prompt(30);
  const auto whole = FakeAnswer(prompt, 20);
  for (int point = 0; point < 60; ++point) {
    Pair pair(Small());
    pair.Reserve(Id(1), prompt, 30, 20);
    pair.Prefill(Id(1), prompt, 30);
    for (int i = 0; i < point; ++i) pair.RunOne();
    const auto first = pair.answer(Id(1));
    if (first.finish != pb::FINISH_REASON_UNSPECIFIED) break;
    pair.Kill(kDecode);
    const auto tokens = Joined(prompt, first.ids);
    pair.Reserve(Id(1, 2), tokens, 30, static_cast<uint32_t>(20 - first.ids.size()), nullptr,
                 kDecode2);
    pair.Prefill(Id(1, 2), tokens, 30, kDecode2);
    pair.Run();
    EXPECT_EQ(Joined(first.ids, pair.answer(Id(1, 2)).ids), whole) << point;
    if (!GetParam()) {
      EXPECT_LE(pair.prefill().state().rows_computed, tokens.size()) << "nothing twice, " << point;
    }
    pair.Forget(Id(1, 2));
    pair.Run();
    if (!GetParam()) pair.ExpectIdle();
  }
}

TEST_P(PairTest, CancelAtAnyPointFreesEverything) {
  for (bool forget_first : {false, true}) {
    for (int point = 0; point < 60; ++point) {
      Pair pair(Small());
      const auto prompt = Prompt(30);
      pair.Reserve(Id(1), prompt, 30, 20);
      pair.Prefill(Id(1), prompt, 30);
      pair.hold_fetches = point % 2 == 1;
      for (int i = 0; i < point; ++i) pair.RunOne();
      if (forget_first) pair.Forget(Id(1));
      pair.Cancel(Id(1));
      pair.Run();
      pair.ReleaseFetches();
      pair.hold_fetches = false;
      if (!forget_first) pair.Forget(Id(1));
      pair.Run();
      pair.ExpectIdle();
      // The canary: the engines still work.
      pair.Reserve(Id(2), prompt, 30, 5);
      pair.Prefill(Id(2), prompt, 30);
      pair.Run();
      EXPECT_EQ(pair.answer(Id(2)).ids, FakeAnswer(prompt, 5)) << point;
    }
  }
}

TEST_P(PairTest, PreemptedSequencesFinishAsWholeAttempts) {
  Pair::Options options = Small();
  options.pages = 24;
  options.prefill.retain_max = 0;
  Pair pair(options);
  constexpr uint32_t kNew = 44;
  std::map<uint64_t, std::vector<TokenId>> got;
  std::map<uint64_t, uint32_t> attempt;
  const auto start = [&](uint64_t i, bool whole) {
    const auto prompt = Prompt(8, i);
    const auto tokens = Joined(prompt, got[i]);
    const AttemptKey id = Id(i, ++attempt[i]);
    pair.Reserve(id, tokens, 8, kNew - static_cast<uint32_t>(got[i].size()),
                 [whole](pb::Reserve* m) { m->set_whole(whole); });
    pair.Prefill(id, tokens, 8);
  };
  for (uint64_t i = 1; i <= 8; ++i) start(i, false);
  int rounds = 0;
  for (bool again = true; again && rounds < 100; ++rounds) {
    pair.Run();
    again = false;
    for (uint64_t i = 1; i <= 8; ++i) {
      auto& a = pair.answer(Id(i, attempt[i]));
      if (a.finish != pb::FINISH_REASON_PREEMPTED) continue;
      got[i].insert(got[i].end(), a.ids.begin(), a.ids.end());
      start(i, true);
      again = true;
    }
  }
  EXPECT_GT(pair.decode().state().preempted, 0u);
  for (uint64_t i = 1; i <= 8; ++i) {
    auto& a = pair.answer(Id(i, attempt[i]));
    EXPECT_EQ(a.finish, pb::FINISH_REASON_LENGTH) << i;
    EXPECT_EQ(Joined(got[i], a.ids), FakeAnswer(Prompt(8, i), kNew)) << i;
  }
  pair.ExpectIdle();
}

TEST_P(PairTest, DrainedEnginesEndWhatTheyRun) {
  Pair pair(Small());
  const auto prompt = Prompt(30);
  pair.Reserve(Id(1), prompt, 30, 20);
  pair.Prefill(Id(1), prompt, 30);
  pair.RunOne();
  pair.Give(kPrefill, DrainRequested{.deadline = pair.now + Millis(1000)});
  pair.Give(kDecode, DrainRequested{.deadline = pair.now + Millis(1000)});
  EXPECT_FALSE(pair.drained[kDecode.value]);
  pair.Reserve(Id(2), prompt, 30, 20);
  pair.Prefill(Id(2), prompt, 30);
  ASSERT_NE(pair.Failure(Id(2)), nullptr);
  EXPECT_EQ(ReasonFrom(*pair.Failure(Id(2))), Reason::kNoCapacity);
  pair.Run();
  EXPECT_EQ(pair.answer(Id(1)).ids, FakeAnswer(prompt, 20));
  EXPECT_TRUE(pair.drained[kPrefill.value]);
  EXPECT_TRUE(pair.drained[kDecode.value]);
}

TEST_P(PairTest, DrainDeadlineMovesTheRest) {
  Pair pair(Small());
  const auto prompt = Prompt(30);
  pair.Reserve(Id(1), prompt, 30, 200);
  pair.Prefill(Id(1), prompt, 30);
  ASSERT_TRUE(pair.RunUntil([&] { return pair.answer(Id(1)).ids.size() > 5; }));
  pair.Give(kDecode, DrainRequested{.deadline = pair.now + Millis(1000)});
  pair.Pass(Millis(1000));
  pair.Run();
  EXPECT_EQ(pair.answer(Id(1)).finish, pb::FINISH_REASON_PREEMPTED);
  EXPECT_TRUE(pair.drained[kDecode.value]);
}

TEST_P(PairTest, RouterVanishesAndLeasesEndEverything) {
  for (int point = 0; point < 40; point += 3) {
    Pair pair(Small());
    const auto prompt = Prompt(30);
    pair.Reserve(Id(1), prompt, 30, 200);
    pair.Prefill(Id(1), prompt, 30);
    for (int i = 0; i < point; ++i) pair.RunOne();
    pair.Renew(Id(1), kPrefill);
    pair.Pass(Millis(29000));
    pair.Renew(Id(1), kDecode);
    pair.Renew(Id(1), kPrefill);
    pair.Pass(Millis(29000));
    EXPECT_EQ(pair.decode().state().leases, 1u) << point;
    pair.Pass(Millis(2000));
    pair.Run();
    pair.ExpectIdle();
    EXPECT_EQ(pair.decode().state().leases, 0u);
    EXPECT_EQ(pair.prefill().state().leases, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Arenas, PairTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Apart"; });

TEST(Pair, PlantedBugsChangeTheAnswerOrTheAccounts) {
  const auto prompt = Prompt(30);
  for (const Planted bug : {Planted::kLostCarry, Planted::kChunkLost,
                            Planted::kCommitRejectedDraft}) {
    g_planted = static_cast<int>(bug);
    Pair pair;
    pair.Reserve(Id(1), prompt, 30, 20);
    pair.Prefill(Id(1), prompt, 30);
    pair.Run();
    g_planted = 0;
    EXPECT_NE(pair.answer(Id(1)).ids, FakeAnswer(prompt, 20)) << static_cast<int>(bug);
  }
}

TEST(Pair, NewAttemptComputesOnlyWhatIsMissing) {
  Pair pair;
  const auto prompt = Prompt(50);
  pair.Reserve(Id(1), prompt, 50, 30);
  pair.Prefill(Id(1), prompt, 50);
  ASSERT_TRUE(pair.RunUntil([&] { return pair.answer(Id(1)).ids.size() >= 12; }));
  EXPECT_GT(pair.prefill().state().pages_retained[0], 0u);
  const auto first = pair.answer(Id(1)).ids;
  pair.Kill(kDecode);
  const auto tokens = Joined(prompt, first);
  pair.Reserve(Id(1, 2), tokens, 50, 18, nullptr, kDecode2);
  pair.Prefill(Id(1, 2), tokens, 50, kDecode2);
  pair.Run();
  EXPECT_EQ(Joined(first, pair.answer(Id(1, 2)).ids), FakeAnswer(prompt, first.size() + 18));
  EXPECT_EQ(pair.prefill().state().rows_computed, tokens.size());
}

}  // namespace
}  // namespace weir::engine
