// SPDX-License-Identifier: Apache-2.0
#include "router/fleet/fleet_core.h"

#include <gtest/gtest.h>

#include "router/limits.h"

namespace weir::router {
namespace {

pb::Hello HelloOf(pb::RoleKind role) {
  pb::Hello hello;
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  hello.set_role(role);
  pb::Geometry* geometry = hello.mutable_geometry();
  geometry->set_model_digest("weights");
  geometry->set_layout_digest("layout");
  geometry->set_block_tokens(4);
  geometry->set_vocab(10);
  return hello;
}

TEST(FleetCore, KeepsInstancesInOrderAndForgetsTheLost) {
  FleetCore fleet;
  ASSERT_TRUE(fleet.Register(InstanceId{9}, HelloOf(pb::ROLE_KIND_DECODE)).ok());
  ASSERT_TRUE(fleet.Register(InstanceId{3}, HelloOf(pb::ROLE_KIND_PREFILL)).ok());
  const FleetSnapshot before = fleet.Snapshot();
  EXPECT_EQ(fleet.view().instances()[0].id, InstanceId{3});
  EXPECT_TRUE(fleet.Lose(InstanceId{3}));
  EXPECT_FALSE(fleet.Lose(InstanceId{3}));
  EXPECT_EQ(fleet.view().CountOf(Role::kPrefill), 0u);
  EXPECT_EQ(before->CountOf(Role::kPrefill), 1u);
}

TEST(FleetCore, SaysInWhatAnEngineDiffers) {
  FleetCore fleet;
  ASSERT_TRUE(fleet.Register(InstanceId{1}, HelloOf(pb::ROLE_KIND_DECODE)).ok());
  const struct {
    const char* field;
    void (*change)(pb::Geometry*);
  } cases[] = {
      {"geometry.model", [](pb::Geometry* g) { g->set_model("other"); }},
      {"geometry.model_digest", [](pb::Geometry* g) { g->set_model_digest("x"); }},
      {"geometry.layout_digest", [](pb::Geometry* g) { g->set_layout_digest("x"); }},
      {"geometry.block_tokens", [](pb::Geometry* g) { g->set_block_tokens(8); }},
      {"geometry.vocab", [](pb::Geometry* g) { g->set_vocab(11); }},
      {"geometry.positions_max", [](pb::Geometry* g) { g->set_positions_max(1); }},
      {"geometry.decoder_tail_rows", [](pb::Geometry* g) { g->set_decoder_tail_rows(1); }},
  };
  for (const auto& c : cases) {
    pb::Hello hello = HelloOf(pb::ROLE_KIND_PREFILL);
    c.change(hello.mutable_geometry());
    const absl::Status status = fleet.Register(InstanceId{2}, hello);
    EXPECT_EQ(ReasonOf(status), Reason::kBadField) << c.field;
    EXPECT_EQ(ParamOf(status), c.field);
  }
  EXPECT_EQ(fleet.view().instances().size(), 1u);
}

TEST(FleetCore, SaysWhyNoEngineOfARoleTakesWork) {
  FleetCore fleet;
  EXPECT_EQ(fleet.view().WhyNone(Role::kDecode), "no decode engine is registered");
  ASSERT_TRUE(fleet.Register(InstanceId{1}, HelloOf(pb::ROLE_KIND_DECODE)).ok());
  EXPECT_EQ(fleet.view().WhyNone(Role::kDecode), "");
  const uint64_t version = fleet.view().version();
  pb::LoadReport report;
  report.set_draining(true);
  fleet.Report(InstanceId{1}, report);
  EXPECT_EQ(fleet.view().WhyNone(Role::kDecode), "no decode engine takes work (1 is draining)");
  EXPECT_NE(fleet.view().version(), version);
  report.set_draining(false);
  fleet.Report(InstanceId{1}, report);
  EXPECT_EQ(fleet.view().WhyNone(Role::kDecode), "");
}

TEST(FleetCore, TokenizersMustAgreeWhereBothHaveOne) {
  FleetCore fleet;
  ASSERT_TRUE(fleet.Register(InstanceId{1}, HelloOf(pb::ROLE_KIND_DECODE)).ok());
  pb::Hello hello = HelloOf(pb::ROLE_KIND_PREFILL);
  hello.mutable_geometry()->set_tokenizer_digest("one");
  ASSERT_TRUE(fleet.Register(InstanceId{2}, hello).ok());
  hello.mutable_geometry()->set_tokenizer_digest("two");
  EXPECT_EQ(ParamOf(fleet.Register(InstanceId{3}, hello)), "geometry.tokenizer_digest");
}

TEST(FleetCore, ChargesOutliveOneReport) {
  FleetCore fleet;
  ASSERT_TRUE(fleet.Register(InstanceId{1}, HelloOf(pb::ROLE_KIND_DECODE)).ok());
  fleet.Charge(InstanceId{1}, 5);
  const Load& load = fleet.view().Find(InstanceId{1})->load;
  EXPECT_EQ(load.tokens_charged(), 5u);
  pb::LoadReport report;
  fleet.Report(InstanceId{1}, report);
  EXPECT_EQ(load.tokens_charged(), 5u);
  EXPECT_EQ(load.requests_charged(), 1u);
  fleet.Report(InstanceId{1}, report);
  EXPECT_EQ(load.tokens_charged(), 0u);
}

TEST(FleetCore, RefusesStrangers) {
  FleetCore fleet;
  EXPECT_EQ(ParamOf(fleet.Register(InstanceId{1}, HelloOf(pb::ROLE_KIND_ROUTER))), "role");
  EXPECT_EQ(ParamOf(fleet.Register(InstanceId{0}, HelloOf(pb::ROLE_KIND_DECODE))), "instance");
  pb::Hello hello = HelloOf(pb::ROLE_KIND_DECODE);
  EXPECT_TRUE(CheckProtocol(hello).ok());
  hello.set_protocol_min(kProtocolMax + 1);
  hello.set_protocol_max(kProtocolMax + 2);
  EXPECT_EQ(ParamOf(CheckProtocol(hello)), "protocol_max");
  pb::Hello wordy = HelloOf(pb::ROLE_KIND_DECODE);
  wordy.set_build(std::string(kNameBytesMax + 1, 'b'));
  EXPECT_EQ(ParamOf(CheckProtocol(wordy)), "build");
  wordy.set_listen_address(std::string(kNameBytesMax + 1, 'a'));
  wordy.clear_build();
  EXPECT_EQ(ParamOf(CheckProtocol(wordy)), "listen_address");
}

}  // namespace
}  // namespace weir::router
