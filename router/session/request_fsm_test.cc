// SPDX-License-Identifier: Apache-2.0
//
// The ways of one request, told through the core that owns it.
#include "router/session/request_fsm.h"

#include "router/limits.h"
#include "router/session/core_harness.h"

namespace weir::router {
namespace {

using Body = pb::Envelope;

// Engines of the request's current attempt.
struct Pair {
  InstanceId decode;
  InstanceId prefill;
};

// Asks and answers until ids may flow (attempt 1).
Pair BringToPrefilling(CoreHarness* h, uint64_t id = 1) {
  Pair pair;
  pair.decode = Only(h->Ask(id), Body::kReserve).to;
  pair.prefill = Only(h->Reserved(pair.decode, id, 1), Body::kPrefill).to;
  return pair;
}

TEST(RequestFsm, ReservesThenPrefillsThenStreams) {
  CoreHarness h;
  h.UpAll(1);
  const auto reserve = Only(h.Ask(1), Body::kReserve);
  EXPECT_EQ(reserve.to, kD1);
  EXPECT_EQ(reserve.message.reserve().token_count(), 8u);
  EXPECT_EQ(reserve.message.reserve().tail_start(), 2u);
  EXPECT_FALSE(reserve.message.reserve().whole());

  const auto prefill = Only(h.Reserved(kD1, 1, 1), Body::kPrefill);
  EXPECT_EQ(prefill.to, kP1);
  EXPECT_EQ(prefill.message.prefill().sink_instance(), kD1.value);
  EXPECT_EQ(prefill.message.prefill().sink_address(), "host:21");
  EXPECT_EQ(prefill.message.prefill().tokens_size(), 8);

  auto out = h.Tokens(kD1, 1, 1, 8, {40, 41});
  ASSERT_EQ(out.deliveries.size(), 1u);
  EXPECT_EQ(out.deliveries[0].first, 0u);
  EXPECT_EQ(out.deliveries[0].ids, (std::vector<TokenId>{40, 41}));

  out = h.Tokens(kD1, 1, 1, 10, {42}, pb::FINISH_REASON_STOP);
  ASSERT_EQ(out.closes.size(), 1u);
  EXPECT_TRUE(out.closes[0].status.ok());
  EXPECT_EQ(out.closes[0].answer_tokens, 3u);
  EXPECT_EQ(Only(out, Body::kForget).to, kP1);
  EXPECT_EQ(CountOf(out, Body::kCancel), 0);
  EXPECT_EQ(h.core.state().requests, 0u);
  EXPECT_EQ(h.core.state().journal_tokens, 0u);
  EXPECT_EQ(h.core.NextDeadline() == kNever, true);
}

TEST(RequestFsm, QueuedReservationPrefillsWithoutASinkAndAttachesLater) {
  CoreHarness h;
  h.UpAll(1);
  h.Ask(1);
  const auto prefill = Only(h.Queued(kD1, 1, 1), Body::kPrefill);
  EXPECT_EQ(prefill.message.prefill().sink_instance(), 0u);
  EXPECT_TRUE(h.Queued(kD1, 1, 1).sends.empty());
  const auto attach = Only(h.Reserved(kD1, 1, 1), Body::kAttach);
  EXPECT_EQ(attach.to, kP1);
  EXPECT_EQ(attach.message.attach().sink_instance(), kD1.value);
  EXPECT_EQ(h.Tokens(kD1, 1, 1, 8, {40}).deliveries.size(), 1u);
}

TEST(RequestFsm, DecodeLostWhileIdsFlowContinuesElsewhereWithTheJournal) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  h.Tokens(first.decode, 1, 1, 8, {40, 41, 42});
  const auto reserve = Only(h.Down(first.decode), Body::kReserve);
  EXPECT_EQ(reserve.to, OtherOf(first.decode));
  EXPECT_EQ(reserve.message.reserve().key().attempt(), 2u);
  EXPECT_EQ(reserve.message.reserve().token_count(), 11u);
  EXPECT_EQ(reserve.message.reserve().new_tokens_max(), 7u);
  EXPECT_EQ(reserve.message.reserve().emitted_size(), 3);
  EXPECT_EQ(reserve.message.reserve().tail_start(), 2u);
  EXPECT_EQ(reserve.message.reserve().sampling().seed(), 99u);

  // The prefill engine that may hold the chunks is asked again.
  const auto prefill = Only(h.Reserved(reserve.to, 1, 2), Body::kPrefill);
  EXPECT_EQ(prefill.to, first.prefill);
  ASSERT_EQ(prefill.message.prefill().tokens_size(), 11);
  EXPECT_EQ(prefill.message.prefill().tokens(10), 42);
  EXPECT_EQ(prefill.message.prefill().prompt_tokens(), 8u);
  EXPECT_EQ(prefill.message.prefill().tail_start(), 2u);

  const auto out = h.Tokens(reserve.to, 1, 2, 11, {43}, pb::FINISH_REASON_STOP);
  ASSERT_EQ(out.deliveries.size(), 1u);
  EXPECT_EQ(out.deliveries[0].first, 3u);
  EXPECT_EQ(out.closes.at(0).attempts, 2u);
}

TEST(RequestFsm, RowsOfAnOlderAttemptAreDropped) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  h.Tokens(first.decode, 1, 1, 8, {40});
  // A failed hand-over ends attempt 1 although its engine lives on.
  const auto out = h.Tokens(first.decode, 1, 1, 9, {}, pb::FINISH_REASON_FAILED, Reason::kPeerLost);
  EXPECT_EQ(Only(out, Body::kReserve).to, OtherOf(first.decode));
  EXPECT_TRUE(h.Tokens(first.decode, 1, 1, 9, {41}).deliveries.empty());
  EXPECT_TRUE(h.Tokens(first.decode, 1, 1, 9, {}, pb::FINISH_REASON_STOP).closes.empty());
  EXPECT_EQ(h.core.state().tokens_stale, 1u);
}

TEST(RequestFsm, DecodeLostBeforeItReservedTriesTheOther) {
  CoreHarness h;
  h.UpAll();
  const InstanceId decode = Only(h.Ask(1), Body::kReserve).to;
  const auto out = h.Down(decode);
  EXPECT_EQ(Only(out, Body::kReserve).to, OtherOf(decode));
  EXPECT_EQ(CountOf(out, Body::kCancel), 0);
}

TEST(RequestFsm, PrefillLostBeforeTheFirstIdReleasesTheReservation) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  const auto out = h.Down(first.prefill);
  const auto cancel = Only(out, Body::kCancel);
  EXPECT_EQ(cancel.to, first.decode);
  EXPECT_EQ(cancel.message.cancel().key().attempt(), 1u);
  const auto reserve = Only(out, Body::kReserve);
  EXPECT_EQ(Only(h.Reserved(reserve.to, 1, 2), Body::kPrefill).to, OtherOf(first.prefill));
}

TEST(RequestFsm, PrefillLostAfterTheFirstIdChangesNothing) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  h.Tokens(first.decode, 1, 1, 8, {40});
  EXPECT_TRUE(h.Down(first.prefill).sends.empty());
  EXPECT_TRUE(h.PrefillFailed(first.prefill, 1, 1, Reason::kPeerLost).sends.empty());
  const auto out = h.Tokens(first.decode, 1, 1, 9, {41}, pb::FINISH_REASON_STOP);
  EXPECT_EQ(out.closes.size(), 1u);
  EXPECT_TRUE(out.sends.empty());
}

TEST(RequestFsm, AbortedHandoverTakesAnotherDecodeEngine) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  const auto out = h.Abort(first.decode, 1, 1, Reason::kCorrupt);
  EXPECT_EQ(Only(out, Body::kCancel).to, first.decode);
  EXPECT_EQ(Only(out, Body::kReserve).to, OtherOf(first.decode));
  EXPECT_EQ(h.core.state().losses, 1u);
}

TEST(RequestFsm, PrefillThatLostItsSinkKeepsTheRequestOnce) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  auto out = h.PrefillFailed(first.prefill, 1, 1, Reason::kPeerLost);
  EXPECT_EQ(CountOf(out, Body::kForget), 0);
  const InstanceId second = OtherOf(first.decode);
  EXPECT_EQ(Only(out, Body::kReserve).to, second);
  EXPECT_EQ(Only(h.Reserved(second, 1, 2), Body::kPrefill).to, first.prefill);
  // Two sinks lost in a row: the engine itself is cut off.
  out = h.PrefillFailed(first.prefill, 1, 2, Reason::kPeerLost);
  EXPECT_EQ(Only(out, Body::kForget).to, first.prefill);
}

TEST(RequestFsm, LosesAttemptsUntilTheyAreExhausted) {
  CoreHarness h({.self = kRouter, .attempts_max = 2});
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  h.Tokens(first.decode, 1, 1, 8, {40});
  const InstanceId second = Only(h.Down(first.decode), Body::kReserve).to;
  const auto out = h.Down(second);
  ASSERT_EQ(out.closes.size(), 1u);
  EXPECT_EQ(ReasonOf(out.closes[0].status), Reason::kPeerLost);
  EXPECT_EQ(out.closes[0].answer_tokens, 1u);
  EXPECT_EQ(Only(out, Body::kForget).to, first.prefill);
  EXPECT_EQ(h.core.state().failed, 1u);
}

TEST(RequestFsm, LinksThatBreakTogetherCostAPauseAndNotTheAnswer) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  h.Tokens(first.decode, 1, 1, 8, {40});
  EXPECT_EQ(CountOf(h.Down(first.decode), Body::kReserve), 1);
  EXPECT_TRUE(h.Down(OtherOf(first.prefill)).closes.empty());
  EXPECT_TRUE(h.Down(first.prefill).closes.empty());
  EXPECT_TRUE(h.Down(OtherOf(first.decode)).closes.empty());
  EXPECT_TRUE(h.Advance(kLossPause).closes.empty());
  h.UpAll();
  h.Advance(Millis(1));
  EXPECT_EQ(h.core.state().failed, 0u);
  EXPECT_EQ(h.core.state().requests, 1u);
  EXPECT_LE(h.core.state().losses, 2u);
}

TEST(RequestFsm, UnknownEndOfAnAnswerIsALoss) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  const auto out = h.Tokens(first.decode, 1, 1, 8, {40}, static_cast<pb::FinishReason>(77));
  EXPECT_EQ(out.deliveries.size(), 1u);
  EXPECT_EQ(Only(out, Body::kReserve).to, OtherOf(first.decode));
}

TEST(RequestFsm, ReasonsThatAreNotAnEnginesToGiveAreItsBug) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  const auto out = h.PrefillFailed(first.prefill, 1, 1, Reason::kCancelled);
  for (const auto& close : out.closes) EXPECT_EQ(ReasonOf(close.status), Reason::kBug);
}

TEST(RequestFsm, FailureThatNoAttemptMendsReachesTheClient) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  const auto out = h.PrefillFailed(first.prefill, 1, 1, Reason::kBadField);
  ASSERT_EQ(out.closes.size(), 1u);
  EXPECT_EQ(ReasonOf(out.closes[0].status), Reason::kBadField);
  EXPECT_EQ(Only(out, Body::kCancel).to, first.decode);
}

TEST(RequestFsm, PreemptionComesBackWholeAndCostsNoAttempt) {
  CoreHarness h({.self = kRouter, .attempts_max = 1});
  h.UpAll(1);
  BringToPrefilling(&h);
  const auto out = h.Tokens(kD1, 1, 1, 8, {40}, pb::FINISH_REASON_PREEMPTED);
  EXPECT_EQ(out.deliveries.size(), 1u);
  const auto reserve = Only(out, Body::kReserve);
  EXPECT_TRUE(reserve.message.reserve().whole());
  EXPECT_EQ(reserve.message.reserve().token_count(), 9u);
  EXPECT_EQ(CountOf(out, Body::kCancel), 0);
  EXPECT_EQ(h.core.state().preemptions, 1u);
}

TEST(RequestFsm, RefusedForRoomTriesTheOtherAtOnceThenPausesThenGivesUp) {
  CoreHarness h;
  h.UpAll();
  const InstanceId first = Only(h.Ask(1), Body::kReserve).to;
  auto out = h.ReserveFailed(first, 1, 1, Reason::kNoCapacity);
  InstanceId asked = Only(out, Body::kReserve).to;
  EXPECT_EQ(asked, OtherOf(first));
  for (uint32_t attempt = 2; h.core.state().requests > 0 && attempt < 100; ++attempt) {
    out = h.ReserveFailed(asked, 1, attempt, Reason::kNoCapacity);
    EXPECT_EQ(CountOf(out, Body::kReserve), 0);
    if (!out.closes.empty()) break;
    asked = Only(h.Advance(kBackoffMax), Body::kReserve).to;
  }
  ASSERT_EQ(out.closes.size(), 1u);
  EXPECT_EQ(ReasonOf(out.closes[0].status), Reason::kNoCapacity);
  EXPECT_EQ(h.core.state().losses, 0u);
}

TEST(RequestFsm, RunningRequestWaitsForAnEngineToComeBack) {
  CoreHarness h;
  h.UpAll(1);
  BringToPrefilling(&h);
  h.Tokens(kD1, 1, 1, 8, {40});
  EXPECT_TRUE(h.Down(kD1).closes.empty());
  EXPECT_EQ(h.core.state().queued, 1u);
  EXPECT_TRUE(h.Advance(kWaitRunning / 2).closes.empty());
  const auto reserve = Only(h.Up(Role::kDecode, kD2), Body::kReserve);
  EXPECT_EQ(reserve.to, kD2);
  EXPECT_EQ(reserve.message.reserve().token_count(), 9u);
}

TEST(RequestFsm, RunningRequestGivesUpWhenNoEngineComesBack) {
  CoreHarness h;
  h.UpAll(1);
  BringToPrefilling(&h);
  h.Down(kD1);
  const auto out = h.Advance(kWaitRunning);
  ASSERT_EQ(out.closes.size(), 1u);
  EXPECT_EQ(ReasonOf(out.closes[0].status), Reason::kNoCapacity);
}

TEST(RequestFsm, OnlyTheFinishWasLost) {
  CoreHarness h;
  h.UpAll(1);
  h.Ask(1, {1, 2, 3}, 2);
  h.Reserved(kD1, 1, 1);
  auto out = h.Tokens(kD1, 1, 1, 3, {40, 41}, pb::FINISH_REASON_FAILED, Reason::kPeerLost);
  ASSERT_EQ(out.closes.size(), 1u);
  EXPECT_EQ(out.closes[0].finish, pb::FINISH_REASON_LENGTH);

  h.Ask(2, {1, 2, 3}, 2);
  h.Reserved(kD1, 2, 1);
  out = h.Tokens(kD1, 2, 1, 3, {40, 41});
  ASSERT_EQ(out.closes.size(), 1u);
  EXPECT_EQ(out.closes[0].finish, pb::FINISH_REASON_LENGTH);
  EXPECT_EQ(CountOf(out, Body::kCancel), 1);
}

TEST(RequestFsm, GapInTheAnswerStartsANewAttempt) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  h.Tokens(first.decode, 1, 1, 8, {40});
  const auto out = h.Tokens(first.decode, 1, 1, 10, {42});
  EXPECT_TRUE(out.deliveries.empty());
  EXPECT_EQ(Only(out, Body::kReserve).message.reserve().token_count(), 9u);
}

TEST(RequestFsm, ReservationThatIsNeverAnsweredMovesOn) {
  CoreHarness h;
  h.UpAll();
  const InstanceId first = Only(h.Ask(1), Body::kReserve).to;
  const auto out = h.Advance(kReserveAnswer);
  EXPECT_EQ(Only(out, Body::kCancel).to, first);
  EXPECT_EQ(Only(out, Body::kReserve).to, OtherOf(first));
}

TEST(RequestFsm, DeadlineEndsTheRequestEverywhere) {
  CoreHarness h({.self = kRouter, .deadline = std::chrono::seconds(5)});
  h.UpAll(1);
  BringToPrefilling(&h);
  const auto out = h.Advance(std::chrono::seconds(5));
  ASSERT_EQ(out.closes.size(), 1u);
  EXPECT_EQ(ReasonOf(out.closes[0].status), Reason::kDeadline);
  EXPECT_EQ(Only(out, Body::kCancel).to, kD1);
  EXPECT_EQ(Only(out, Body::kForget).to, kP1);
}

TEST(RequestFsm, DrainingPrefillIsNotAskedAgain) {
  CoreHarness h;
  h.UpAll();
  const Pair first = BringToPrefilling(&h);
  h.Tokens(first.decode, 1, 1, 8, {40});
  pb::Envelope load;
  load.mutable_load()->set_draining(true);
  h.Say(first.prefill, load);
  const auto out = h.Down(first.decode);
  EXPECT_EQ(Only(out, Body::kForget).to, first.prefill);
  const auto prefill = Only(h.Reserved(OtherOf(first.decode), 1, 2), Body::kPrefill);
  EXPECT_EQ(prefill.to, OtherOf(first.prefill));
}

TEST(RequestFsm, LogprobsFollowTheirIds) {
  CoreHarness h;
  h.UpAll(1);
  h.Ask(1, {1, 2, 3, 4, 5, 6, 7, 8}, 10, /*logprobs=*/true);
  h.Reserved(kD1, 1, 1);
  pb::Envelope message;
  pb::TokenRow* row = message.mutable_tokens()->add_rows();
  CoreHarness::FillKey(row->mutable_key(), 1, 1);
  row->set_position(8);
  for (int i = 0; i < 2; ++i) {
    row->add_ids(40 + i);
    row->add_logprobs()->set_logprob(-1.0f - static_cast<float>(i));
  }
  h.Say(kD1, message);
  // The same row again, one id longer: only the new one is delivered.
  row->add_ids(42);
  row->add_logprobs()->set_logprob(-3.0f);
  const auto out = h.Say(kD1, message);
  ASSERT_EQ(out.deliveries.size(), 1u);
  ASSERT_EQ(out.deliveries[0].logprobs.size(), 1u);
  EXPECT_EQ(out.deliveries[0].ids[0], 42);
  EXPECT_EQ(out.deliveries[0].logprobs[0].logprob(), -3.0f);
  // An engine that leaves them out: there is one for each id all the same.
  const auto bare = h.Tokens(kD1, 1, 1, 11, {43, 44});
  ASSERT_EQ(bare.deliveries.size(), 1u);
  EXPECT_EQ(bare.deliveries[0].logprobs.size(), 2u);
}

TEST(RequestFsm, IdsOutsideOfTheVocabularyAreALoss) {
  for (const TokenId wild : {-1, 100, INT32_MAX}) {
    CoreHarness h;
    h.UpAll();
    const Pair first = BringToPrefilling(&h);
    h.Tokens(first.decode, 1, 1, 8, {40});
    const auto out = h.Tokens(first.decode, 1, 1, 9, {41, wild});
    EXPECT_TRUE(out.deliveries.empty());
    const auto reserve = Only(out, Body::kReserve);
    EXPECT_EQ(reserve.to, OtherOf(first.decode));
    EXPECT_EQ(reserve.message.reserve().token_count(), 9u);
  }
}

TEST(RequestFsm, EachAttemptOfATracedRequestHasItsSpans) {
  CoreHarness h;
  h.UpAll();
  Submit submit;
  submit.request = RequestId{1};
  submit.prompt = {1, 2, 3};
  submit.new_tokens_max = 4;
  submit.trace = {7, 8, 9, true};
  auto out = h.On(submit);
  const auto reserve = Only(out, Body::kReserve);
  const pb::TraceContext decode_context = reserve.message.reserve().trace();
  EXPECT_EQ(decode_context.trace_lo(), 8u);
  h.now += Millis(1);
  const auto prefill = Only(h.Reserved(reserve.to, 1, 1), Body::kPrefill);
  EXPECT_NE(prefill.message.prefill().trace().span(), decode_context.span());
  h.now += Millis(1);
  h.Tokens(reserve.to, 1, 1, 3, {40});
  h.now += Millis(1);
  out = h.Down(reserve.to);
  ASSERT_EQ(out.spans.size(), 1u);  // the prefill span was over with the first id
  EXPECT_EQ(out.spans[0].context.span, decode_context.span());
  EXPECT_EQ(out.spans[0].parent, 9u);
  EXPECT_EQ(out.spans[0].reason, Reason::kPeerLost);
  EXPECT_EQ(out.spans[0].end - out.spans[0].begin, Millis(3));
  const auto again = Only(out, Body::kReserve);
  EXPECT_NE(again.message.reserve().trace().span(), decode_context.span());
  h.Reserved(again.to, 1, 2);
  out = h.Tokens(again.to, 1, 2, 4, {41, 42, 43}, pb::FINISH_REASON_LENGTH);
  ASSERT_EQ(out.spans.size(), 2u);
  EXPECT_STREQ(out.spans[0].name, "prefill attempt");
  EXPECT_EQ(out.spans[1].attributes[0].value, 2);
  EXPECT_EQ(out.spans[1].reason, Reason::kOk);
}

}  // namespace
}  // namespace weir::router
