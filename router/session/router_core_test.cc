// SPDX-License-Identifier: Apache-2.0
#include "router/session/router_core.h"

#include "router/limits.h"
#include "router/session/core_harness.h"

namespace weir::router {
namespace {

using Body = pb::Envelope;

const absl::Status& StatusOfOnly(const RouterActions& out) {
  static const absl::Status none;
  EXPECT_EQ(out.closes.size(), 1u);
  return out.closes.empty() ? none : out.closes[0].status;
}

TEST(RouterCore, RefusesAPromptItCannotServe) {
  CoreHarness h;
  h.UpAll(1);
  auto out = h.Ask(1, {});
  EXPECT_EQ(ReasonOf(StatusOfOnly(out)), Reason::kBadField);
  EXPECT_EQ(ParamOf(StatusOfOnly(out)), "prompt");

  out = h.Ask(2, {1, 100});
  EXPECT_EQ(ReasonOf(StatusOfOnly(out)), Reason::kBadField);
  EXPECT_NE(StatusOfOnly(out).message().find("100"), absl::string_view::npos);
  EXPECT_EQ(ReasonOf(StatusOfOnly(h.Ask(3, {-1}))), Reason::kBadField);
  EXPECT_EQ(h.core.state().refused, 3u);
  EXPECT_EQ(h.core.state().requests, 0u);
}

TEST(RouterCore, LengthLimitIsThePoolsAndBothNumbersAreTold) {
  CoreHarness h;
  h.UpAll(1);  // positions_max 64, pools of 48
  const std::vector<TokenId> prompt(40, 1);
  auto out = h.Ask(1, prompt, 9);
  EXPECT_EQ(ReasonOf(StatusOfOnly(out)), Reason::kTooLong);
  const std::string message(StatusOfOnly(out).message());
  EXPECT_NE(message.find("48"), std::string::npos);
  EXPECT_NE(message.find("49"), std::string::npos);
  EXPECT_NE(message.find("context_length_exceeded"), std::string::npos);

  EXPECT_EQ(Only(h.Ask(2, prompt, 8), Body::kReserve).message.reserve().new_tokens_max(), 8u);
  // Zero means as many as fit.
  EXPECT_EQ(Only(h.Ask(3, prompt, 0), Body::kReserve).message.reserve().new_tokens_max(), 8u);
  EXPECT_EQ(ParamOf(StatusOfOnly(out)), "max_tokens");
  EXPECT_EQ(ReasonOf(StatusOfOnly(h.Ask(4, std::vector<TokenId>(48, 1), 0))), Reason::kTooLong);
  out = h.Ask(6, std::vector<TokenId>(48, 1), 3);
  EXPECT_EQ(ParamOf(StatusOfOnly(out)), "prompt");  // no fewer tokens would do
  EXPECT_EQ(ReasonOf(StatusOfOnly(h.Ask(5, {1}, UINT32_MAX))), Reason::kTooLong);
}

TEST(RouterCore, TailStartIsZeroForShortPrompts) {
  CoreHarness h;
  h.UpAll(1);
  EXPECT_EQ(Only(h.Ask(1, {1, 2, 3}), Body::kReserve).message.reserve().tail_start(), 0u);
}

TEST(RouterCore, TableOfRequestsIsBounded) {
  CoreHarness h({.self = kRouter, .requests_max = 1});
  h.UpAll(1);
  h.Ask(1);
  EXPECT_EQ(ReasonOf(StatusOfOnly(h.Ask(2))), Reason::kQueueFull);
  h.On(Withdraw{RequestId{1}});
  EXPECT_TRUE(h.Ask(3).closes.empty());
}

TEST(RouterCore, NewRequestWaitsAMomentForEngines) {
  CoreHarness h;
  EXPECT_TRUE(h.Ask(1).closes.empty());
  EXPECT_TRUE(h.Ask(2, {1, 2, 999}).closes.empty());
  EXPECT_TRUE(h.Up(Role::kPrefill, kP1).closes.empty());
  const auto out = h.Up(Role::kDecode, kD1);
  EXPECT_EQ(Only(out, Body::kReserve).message.reserve().key().request(), 1u);
  // Only now the vocabulary is known.
  EXPECT_EQ(ReasonOf(StatusOfOnly(out)), Reason::kBadField);

  CoreHarness empty;
  empty.Ask(1);
  EXPECT_TRUE(empty.Advance(kWaitNew / 2).closes.empty());
  EXPECT_EQ(ReasonOf(StatusOfOnly(empty.Advance(kWaitNew))), Reason::kNoCapacity);
}

TEST(RouterCore, WithdrawReleasesBothSidesWithoutAWord) {
  CoreHarness h;
  h.UpAll(1);
  h.Ask(1);
  h.Reserved(kD1, 1, 1);
  h.Tokens(kD1, 1, 1, 8, {40});
  const auto out = h.On(Withdraw{RequestId{1}});
  EXPECT_TRUE(out.closes.empty());
  EXPECT_EQ(Only(out, Body::kCancel).to, kD1);
  EXPECT_EQ(Only(out, Body::kForget).to, kP1);
  EXPECT_EQ(h.core.state().cancelled, 1u);
  EXPECT_EQ(h.core.state().requests, 0u);
  EXPECT_EQ(h.core.state().journal_tokens, 0u);
  EXPECT_TRUE(h.On(Withdraw{RequestId{1}}).sends.empty());

  h.Ask(2);
  h.On(Withdraw{RequestId{2}, true});
  EXPECT_EQ(h.core.state().succeeded, 1u);
}

TEST(RouterCore, MessagesNobodyKnowsAreCountedAndDropped) {
  CoreHarness h;
  h.UpAll(1);
  h.Reserved(kD1, 77, 1);
  h.Tokens(kD1, 77, 1, 0, {1});
  h.Reserved(InstanceId{99}, 77, 1);
  h.Say(kD1, pb::Envelope());
  EXPECT_EQ(h.core.state().orphans, 4u);
}

TEST(RouterCore, EngineThatComesBackIsToldToStopWhatItHad) {
  CoreHarness h;
  h.UpAll(2);
  h.Ask(1);
  h.Reserved(kD1, 1, 1);
  h.Tokens(kD1, 1, 1, 8, {40});
  h.On(PeerDown{kD1});
  h.Up(Role::kDecode, kD1);
  auto out = h.Tokens(kD1, 1, 1, 9, {41});
  const auto& cancel = Only(out, Body::kCancel);
  EXPECT_EQ(cancel.to, kD1);
  EXPECT_EQ(cancel.message.cancel().key().attempt(), 1u);
  // Its last word needs no answer.
  EXPECT_TRUE(h.Tokens(kD1, 1, 1, 10, {}, pb::FINISH_REASON_CANCELLED).sends.empty());
}

TEST(RouterCore, RenewsEveryThirdOfALeaseAtBothEngines) {
  CoreHarness h;
  h.UpAll(1);
  h.Ask(1);
  h.Ask(2);
  h.Reserved(kD1, 1, 1);
  const auto out = h.Advance(std::chrono::seconds(10));
  int keys = 0;
  for (const auto& send : out.sends) {
    if (send.message.has_renew()) keys += send.message.renew().keys_size();
  }
  EXPECT_GE(CountOf(out, Body::kRenew), 2);
  EXPECT_EQ(keys, 4);
  h.On(Withdraw{RequestId{1}});
  h.On(Withdraw{RequestId{2}});
  EXPECT_EQ(CountOf(h.Advance(std::chrono::seconds(30)), Body::kRenew), 0);
  EXPECT_TRUE(h.core.NextDeadline() == kNever);
}

TEST(RouterCore, BurstSpreadsBeforeLoadIsReported) {
  CoreHarness h;
  h.UpAll();
  int first = 0;
  for (uint64_t id = 1; id <= 8; ++id) {
    first += Only(h.Ask(id), Body::kReserve).to == kD1 ? 1 : 0;
  }
  EXPECT_EQ(first, 4);
}

TEST(RouterCore, AGapInWhatAnEngineHoldsIsFilledByASnapshot) {
  CoreHarness h;
  h.UpAll();
  const auto tell = [&h](uint64_t number, bool snapshot) {
    pb::Envelope message;
    message.mutable_cache_events()->set_number(number);
    message.mutable_cache_events()->set_snapshot(snapshot);
    message.mutable_cache_events()->add_added(number);
    return h.On(Received{kP1, message});
  };
  EXPECT_TRUE(tell(1, false).sends.empty());
  EXPECT_EQ(Only(tell(3, false), Body::kCacheResync).to, kP1);
  EXPECT_EQ(h.core.prefixes().keys(), 0u);
  EXPECT_TRUE(tell(4, true).sends.empty());
  EXPECT_EQ(h.core.prefixes().keys(), 1u);
  h.Down(kP1);
  EXPECT_EQ(h.core.prefixes().keys(), 0u);
}

TEST(RouterCore, EngineOfAnotherGeometryIsRefused) {
  CoreHarness h;
  h.UpAll(1);
  pb::Hello other = HelloOf(Role::kDecode, kD2);
  other.mutable_geometry()->set_block_tokens(8);
  const auto refused = Only(h.Up(other), Body::kHelloRefused);
  EXPECT_EQ(refused.to, kD2);
  EXPECT_NE(refused.message.hello_refused().failure().message().find("block_tokens"),
            std::string::npos);
  EXPECT_EQ(h.core.state().decode_instances, 1u);
  EXPECT_EQ(h.core.state().hellos_refused, 1u);

  // When nobody is left the next one decides.
  h.Down(kP1);
  h.Down(kD1);
  EXPECT_TRUE(h.Up(other).sends.empty());
}

TEST(RouterCore, InstanceThatComesUpTwiceLostWhatItHad) {
  CoreHarness h;
  h.UpAll(1);
  h.Ask(1);
  const auto out = h.Up(Role::kDecode, kD1);
  EXPECT_EQ(Only(out, Body::kReserve).message.reserve().key().attempt(), 2u);
}

TEST(RouterCore, DrainRefusesNewAndLetsTheRunningFinish) {
  CoreHarness h;
  h.UpAll(1);
  h.Ask(1);
  h.Reserved(kD1, 1, 1);
  EXPECT_FALSE(h.On(DrainRequested{h.now + std::chrono::seconds(30)}).drained);
  EXPECT_EQ(ReasonOf(StatusOfOnly(h.Ask(2))), Reason::kNoCapacity);
  const auto out = h.Tokens(kD1, 1, 1, 8, {40}, pb::FINISH_REASON_STOP);
  EXPECT_TRUE(StatusOfOnly(out).ok());
  EXPECT_TRUE(out.drained);
  EXPECT_FALSE(h.On(Tick{}).drained);
}

TEST(RouterCore, DrainFailsWhatIsLeftAtItsDeadline) {
  CoreHarness h;
  h.UpAll(1);
  h.Ask(1);
  h.On(DrainRequested{h.now + std::chrono::seconds(3)});
  const auto out = h.Advance(std::chrono::seconds(3));
  EXPECT_EQ(ReasonOf(StatusOfOnly(out)), Reason::kNoCapacity);
  EXPECT_TRUE(out.drained);
}

TEST(RouterCore, DrainWithNothingRunningIsDoneAtOnce) {
  CoreHarness h;
  EXPECT_TRUE(h.On(DrainRequested{h.now}).drained);
}

TEST(RouterCore, SameEventsSameActions) {
  std::vector<uint64_t> choices[2];
  for (auto& run : choices) {
    CoreHarness h;
    h.UpAll();
    for (uint64_t id = 1; id <= 50; ++id) {
      run.push_back(Only(h.Ask(id), Body::kReserve).to.value);
      if (id % 3 == 0) h.On(Withdraw{RequestId{id - 1}});
    }
  }
  EXPECT_EQ(choices[0], choices[1]);
}

}  // namespace
}  // namespace weir::router
