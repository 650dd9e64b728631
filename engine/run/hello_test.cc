// SPDX-License-Identifier: Apache-2.0
#include "engine/run/hello.h"

#include <gtest/gtest.h>

#include <string>

namespace weir::engine {
namespace {

TEST(CheckHello, NamesWhatItRefuses) {
  pb::Geometry geometry;
  geometry.set_model_digest("m");
  geometry.set_layout_digest("l");
  pb::Hello good;
  good.set_protocol_min(1);
  good.set_protocol_max(1);
  good.set_instance(5);
  good.set_role(pb::ROLE_KIND_DECODE);
  *good.mutable_geometry() = geometry;
  EXPECT_TRUE(CheckHello(good, InstanceId(9), geometry).ok());

  const auto refused = [&](auto change) {
    pb::Hello hello = good;
    change(&hello);
    return ParamOf(CheckHello(hello, InstanceId(9), geometry));
  };
  EXPECT_EQ(refused([](pb::Hello* h) { h->set_protocol_min(2), h->set_protocol_max(3); }),
            "protocol_max");
  EXPECT_EQ(refused([](pb::Hello* h) { h->set_instance(0); }), "instance");
  EXPECT_EQ(refused([](pb::Hello* h) { h->set_instance(9); }), "instance");
  EXPECT_EQ(refused([](pb::Hello* h) { h->set_role(static_cast<pb::RoleKind>(99)); }), "role");
  EXPECT_EQ(refused([](pb::Hello* h) { h->clear_role(); }), "role");
  const std::string large(kPeerNameBytesMax + 1, 'x');
  EXPECT_EQ(refused([&](pb::Hello* h) { h->set_name(large); }), "name");
  EXPECT_EQ(refused([&](pb::Hello* h) { h->set_build(large); }), "build");
  EXPECT_EQ(refused([&](pb::Hello* h) { h->set_listen_address(large); }), "listen_address");
  EXPECT_EQ(refused([](pb::Hello* h) { h->clear_geometry(); }), "geometry.model_digest");
  // A router serves no checkpoint of its own.
  EXPECT_EQ(refused([](pb::Hello* h) {
              h->set_role(pb::ROLE_KIND_ROUTER);
              h->clear_geometry();
            }),
            "");
}

}  // namespace
}  // namespace weir::engine
