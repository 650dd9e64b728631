// SPDX-License-Identifier: Apache-2.0
#include "base/config/load.h"

#include <cstdio>
#include <fstream>

#include "base/config/load_test.pb.h"
#include "base/stdx/planted.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using config_test::TestConfig;

constexpr char kGood[] = R"(# a comment
server:
  listen_host: 0.0.0.0
  listen_port: 8080
  load_max: 0.5
  tls: true
  body_bytes_max: 18446744073709551615
  mode: exact
peers:
  - address: "a:1"
    weight: 2
  - {address: "b:2", weight: 3}
tags: [x, "7", 8]
quotas:
  alice: 5
ratio: 0.25
)";

absl::Status Load(std::string_view text, TestConfig* config, ConfigSources sources = {}) {
  return LoadConfigText(text, "t.yaml", sources, config);
}

TEST(Config, ReadsEveryKindOfField) {
  TestConfig config;
  ASSERT_TRUE(Load(kGood, &config).ok()) << Load(kGood, &config);
  EXPECT_EQ(config.server().listen_host(), "0.0.0.0");
  EXPECT_EQ(config.server().listen_port(), 8080);
  EXPECT_EQ(config.server().load_max(), 0.5);
  EXPECT_TRUE(config.server().tls());
  EXPECT_EQ(config.server().body_bytes_max(), ~uint64_t{0});
  EXPECT_EQ(config.server().mode(), TestConfig::MODE_EXACT);
  ASSERT_EQ(config.peers_size(), 2);
  EXPECT_EQ(config.peers(1).address(), "b:2");
  ASSERT_EQ(config.tags_size(), 3);
  EXPECT_EQ(config.tags(2), "8");
  EXPECT_EQ(config.quotas().at("alice"), 5);
}

TEST(Config, ReadsJsonAndKeepsDefaults) {
  TestConfig config;
  config.mutable_server()->set_listen_port(9);
  ASSERT_TRUE(Load(R"({"server": {"listen_host": "h", "tls": false}, "tags": ["a"]})", &config).ok());
  EXPECT_EQ(config.server().listen_host(), "h");
  EXPECT_EQ(config.server().listen_port(), 9);
  EXPECT_TRUE(Load("", &config).ok());
  EXPECT_TRUE(Load("server:\n", &config).ok());
}

TEST(Config, ListsAllProblemsWithTheirLines) {
  TestConfig config;
  const absl::Status status = Load(R"(server:
  listen_prot: 1
  listen_port: many
  tls: maybe
  mode: exakt
  body_bytes_max: -1
peers: {}
tags: [[1]]
sevrer: {}
ratio: "0.5"
server: {}
)", &config);
  EXPECT_EQ(ReasonOf(status), Reason::kBadField);
  const std::string text(status.message());
  for (const char* line : {
           "t.yaml:2: server.listen_prot: unknown key (did you mean listen_port?)",
           "t.yaml:3: server.listen_port: expected an integer, found \"many\"",
           "t.yaml:4: server.tls: expected true or false, found \"maybe\"",
           "t.yaml:5: server.mode: expected one of fast, exact, found \"exakt\" (did you mean exact?)",
           "t.yaml:6: server.body_bytes_max: expected a non-negative integer, found \"-1\"",
           "t.yaml:7: peers: expected a list, each item a map",
           "t.yaml:8: tags[0]: expected a string, found a list",
           "t.yaml:9: sevrer: unknown key (did you mean server?)",
           "t.yaml:10: ratio: expected a number, found \"0.5\"",
           "t.yaml:11: server: is given twice",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
  }
}

TEST(Config, BrokenYamlNamesItsLine) {
  TestConfig config;
  EXPECT_NE(Load("server:\n  a: [1, 2\n", &config).message().find("t.yaml:"), absl::string_view::npos);
  EXPECT_FALSE(Load("just text", &config).ok());
  EXPECT_FALSE(Load("a: 1\n---\nb: 2\n", &config).ok());
  EXPECT_NE(LoadConfig({.file = "/nonexistent.yaml"}, &config).message().find("/nonexistent.yaml"),
            absl::string_view::npos);
}

TEST(Config, OverlaysWinInTheirOrder) {
  TestConfig config;
  ConfigSources sources;
  sources.environment = {{"WEIR_SERVER__LISTEN_PORT", "2"}, {"WEIR_SERVER__LISTEN_HOST", "1"}};
  sources.sets = {"server.listen_port=3", "tags=[p, q]", "ratio=2", "server.mode=FAST"};
  ASSERT_TRUE(Load(kGood, &config, sources).ok()) << Load(kGood, &config, sources);
  EXPECT_EQ(config.server().listen_port(), 3);
  EXPECT_EQ(config.server().listen_host(), "1");
  EXPECT_EQ(config.server().mode(), TestConfig::MODE_FAST);
  EXPECT_EQ(config.tags_size(), 2);
  EXPECT_EQ(config.ratio(), 2);
  sources.environment = {{"WEIR_SERVER__LISTEN_PROT", "2"}};
  sources.sets = {"server.listen_port", "server.listen_port=x", "nothing.here=1"};
  const std::string text(Load(kGood, &config, sources).message());
  for (const char* line : {"WEIR_SERVER__LISTEN_PROT: server.listen_prot: unknown key",
                           "--set server.listen_port: expected section.key=value",
                           "--set server.listen_port: server.listen_port: expected an integer",
                           "--set nothing.here: nothing: unknown key"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
  }
}

TEST(Config, OverlayOfAStringIsTakenVerbatim) {
  TestConfig config;
  ConfigSources sources;
  sources.sets = {"server.listen_host=[::1] # {", "server.listen_host="};
  ASSERT_TRUE(Load("", &config, {.sets = {sources.sets[0]}}).ok());
  EXPECT_EQ(config.server().listen_host(), "[::1] # {");
  ASSERT_TRUE(Load("", &config, sources).ok());
  EXPECT_EQ(config.server().listen_host(), "");
}

TEST(Config, ValidationAddsToTheList) {
  TestConfig config;
  ConfigSources sources;
  sources.validate = [](const google::protobuf::Message& message, ConfigProblems* problems) {
    const auto& c = static_cast<const TestConfig&>(message);
    if (c.server().listen_port() > 65535) problems->Add("server.listen_port", "is above 65535");
    if (c.ratio() > 1) problems->Add("ratio", "is above 1");
  };
  const auto status = Load("server: {listen_port: 70000}\nratio: 7", &config, sources);
  EXPECT_EQ(status.message(), "server.listen_port: is above 65535\nratio: is above 1");
}

TEST(Config, DumpReadsBackTheSame) {
  TestConfig config;
  ASSERT_TRUE(Load(kGood, &config).ok());
  config.mutable_server()->set_listen_host("a \"b\"\\\n\t:");
  const std::string dump = DumpConfig(config);
  TestConfig back;
  ASSERT_TRUE(Load(dump, &back).ok()) << Load(dump, &back) << dump;
  EXPECT_EQ(back.ShortDebugString(), config.ShortDebugString()) << dump;
  const std::string empty = DumpConfig(TestConfig());
  EXPECT_NE(empty.find("peers: []\n"), std::string::npos);
  EXPECT_TRUE(Load(empty, &back).ok());
}

TEST(Config, PlantedBugsAreArmedByNumber) {
  EXPECT_TRUE(ArmPlanted("").ok());
  EXPECT_TRUE(ArmPlanted("0").ok());
  EXPECT_EQ(ReasonOf(ArmPlanted("x")), Reason::kBadField);
  EXPECT_EQ(ReasonOf(ArmPlanted("999")), Reason::kBadField);
#ifdef WEIR_PLANTED
  EXPECT_TRUE(ArmPlanted("7").ok());
  EXPECT_TRUE(IsPlanted(Planted::kTailStartMoves));
  g_planted = 0;
#endif
}

}  // namespace
}  // namespace weir
