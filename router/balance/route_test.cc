// SPDX-License-Identifier: Apache-2.0
#include "router/balance/route.h"

#include <gtest/gtest.h>

#include "router/fleet/fleet_core.h"

namespace weir::router {
namespace {

constexpr InstanceId kP1{1}, kP2{2}, kD1{3}, kD2{4};

class RouteTest : public ::testing::Test {
 protected:
  RouteTest() {
    for (InstanceId id : {kP1, kP2, kD1, kD2}) Add(id, 0);
  }
  void Add(InstanceId id, uint32_t sequence_tokens_max) {
    pb::Hello hello;
    hello.set_role(id < kD1 ? pb::ROLE_KIND_PREFILL : pb::ROLE_KIND_DECODE);
    hello.mutable_geometry()->set_block_tokens(4);
    hello.mutable_geometry()->set_sequence_tokens_max(sequence_tokens_max);
    ASSERT_TRUE(fleet_.Register(id, hello).ok());
  }
  pb::LoadReport SlotsUsed(uint32_t used) {
    pb::LoadReport report;
    report.set_slots_total(10);
    report.set_slots_used(used);
    report.set_pages_total(100);
    return report;
  }
  Route Choose(const RouteInputs& inputs) {
    auto route = ChooseRoute(inputs, fleet_.view(), &random_);
    EXPECT_TRUE(route.ok()) << route.status();
    return route.value_or(Route{});
  }

  FleetCore fleet_;
  Random random_{1};
};

TEST_F(RouteTest, TakesTheDecodeEngineWithTheSmallestShareInUse) {
  fleet_.Report(kD1, SlotsUsed(5));
  fleet_.Report(kD2, SlotsUsed(4));
  EXPECT_EQ(Choose({}).decode, kD2);
  // Pages may be scarcer than slots.
  pb::LoadReport full = SlotsUsed(4);
  full.set_pages_used(90);
  fleet_.Report(kD2, full);
  EXPECT_EQ(Choose({}).decode, kD1);
}

TEST_F(RouteTest, TakesThePrefillEngineWithTheFewestTokensAhead) {
  pb::LoadReport report;
  report.set_queued_tokens(1000);
  fleet_.Report(kP1, report);
  EXPECT_EQ(Choose({}).prefill, kP2);
  EXPECT_EQ(Choose({.preferred_prefill = kP1}).prefill, kP1);
  EXPECT_EQ(Choose({.preferred_prefill = kP1, .avoided_prefill = kP1}).prefill, kP2);
}

TEST_F(RouteTest, APrefixThatIsThereCountsAsManyTokensAhead) {
  const PrefixHit hit{.prefill = kP1, .tokens = 600};
  const RouteInputs inputs{.tokens = 1000, .hits = std::span(&hit, 1)};
  EXPECT_EQ(Choose(inputs).prefill, kP1);
  EXPECT_EQ(Choose(inputs).hit_tokens, 600u);
  pb::LoadReport report;
  report.set_queued_tokens(599);
  fleet_.Report(kP1, report);
  EXPECT_EQ(Choose(inputs).prefill, kP1);
  report.set_queued_tokens(601);  // computing it anew elsewhere is sooner
  fleet_.Report(kP1, report);
  EXPECT_EQ(Choose(inputs).prefill, kP2);
  EXPECT_EQ(Choose(inputs).hit_tokens, 0u);
}

TEST_F(RouteTest, NeverADrainingOneAndNoneIsAnAnswer) {
  pb::LoadReport draining;
  draining.set_draining(true);
  fleet_.Report(kP1, draining);
  EXPECT_EQ(Choose({.preferred_prefill = kP1}).prefill, kP2);
  fleet_.Report(kP2, draining);
  const absl::Status status = ChooseRoute({}, fleet_.view(), &random_).status();
  EXPECT_EQ(ReasonOf(status), Reason::kNoCapacity);
  EXPECT_EQ(status.message(), "no prefill engine takes work (2 are draining)");
}

TEST_F(RouteTest, AvoidedOnlyWhileThereIsAnother) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Choose({.avoided_decode = kD1}).decode, kD2);
  fleet_.Lose(kD2);
  EXPECT_EQ(Choose({.avoided_decode = kD1}).decode, kD1);
}

TEST_F(RouteTest, SequenceMustFitTheInstance) {
  Add(kD1, 10);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Choose({.tokens_max = 11}).decode, kD2);
}

TEST_F(RouteTest, EqualsAreDrawn) {
  int first = 0;
  for (int i = 0; i < 200; ++i) first += Choose({}).decode == kD1 ? 1 : 0;
  EXPECT_GT(first, 50);
  EXPECT_LT(first, 150);
}

}  // namespace
}  // namespace weir::router
