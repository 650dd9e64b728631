// SPDX-License-Identifier: Apache-2.0
#include "router/session/token_journal.h"

#include <gtest/gtest.h>

#include "base/stdx/planted.h"

namespace weir::router {
namespace {

using Verdict = TokenJournal::Verdict;
using Ids = std::vector<TokenId>;

TokenJournal Begun(uint32_t new_tokens_max = 8) {
  TokenJournal journal({10, 11, 12});
  journal.Bound(new_tokens_max, 1);
  journal.BeginAttempt(Attempt{1});
  return journal;
}

Ids AnswerOf(const TokenJournal& journal) {
  return {journal.answer().begin(), journal.answer().end()};
}

TEST(TokenJournal, TakesEachPositionOnce) {
  TokenJournal journal = Begun();
  EXPECT_EQ(journal.Accept(Attempt{1}, 3, Ids{1, 2}).verdict, Verdict::kTaken);
  EXPECT_EQ(journal.Accept(Attempt{1}, 3, Ids{1, 2}).verdict, Verdict::kStale);
  const auto overlap = journal.Accept(Attempt{1}, 4, Ids{2, 3});
  EXPECT_EQ(overlap.verdict, Verdict::kTaken);
  EXPECT_EQ(overlap.first, 2u);
  EXPECT_EQ(AnswerOf(journal), (Ids{1, 2, 3}));
}

TEST(TokenJournal, RefusesAGapAndStoresNothing) {
  TokenJournal journal = Begun();
  EXPECT_EQ(journal.Accept(Attempt{1}, 4, Ids{2}).verdict, Verdict::kGap);
  EXPECT_EQ(journal.answer_tokens(), 0u);
}

TEST(TokenJournal, OldAttemptsAreStaleAndTailStartStays) {
  TokenJournal journal = Begun();
  journal.Accept(Attempt{1}, 3, Ids{1, 2});
  journal.BeginAttempt(Attempt{2});
  EXPECT_EQ(journal.Accept(Attempt{1}, 5, Ids{3}).verdict, Verdict::kStale);
  EXPECT_EQ(journal.Accept(Attempt{2}, 5, Ids{3}).verdict, Verdict::kTaken);
  EXPECT_EQ(AnswerOf(journal), (Ids{1, 2, 3}));
  EXPECT_EQ(journal.tail_start(), 1u);
}

TEST(TokenJournal, NeverHoldsMoreThanAskedFor) {
  TokenJournal journal = Begun(3);
  EXPECT_EQ(journal.Accept(Attempt{1}, 3, Ids{1, 2, 3, 4, 5}).verdict, Verdict::kTaken);
  EXPECT_EQ(AnswerOf(journal), (Ids{1, 2, 3}));
  EXPECT_TRUE(journal.full());
  EXPECT_EQ(journal.tokens_left(), 0u);
}

TEST(TokenJournal, RowsInsideThePromptAreStale) {
  TokenJournal journal = Begun();
  EXPECT_EQ(journal.Accept(Attempt{1}, 1, Ids{1, 2, 3, 4}).verdict, Verdict::kStale);
  EXPECT_EQ(journal.answer_tokens(), 0u);
}

#ifdef WEIR_PLANTED
TEST(TokenJournal, PlantedDoubleTokenStrikesOnceAfterAFailover) {
  g_planted = static_cast<int>(Planted::kDoubleToken);
  TokenJournal journal = Begun();
  EXPECT_EQ(journal.Accept(Attempt{1}, 3, Ids{1}).first, 0u);
  journal.BeginAttempt(Attempt{2});
  EXPECT_EQ(journal.Accept(Attempt{2}, 4, Ids{2}).first, 0u);
  EXPECT_EQ(journal.Accept(Attempt{2}, 5, Ids{3}).first, 2u);
  g_planted = 0;
}
#endif

}  // namespace
}  // namespace weir::router
