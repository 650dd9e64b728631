// SPDX-License-Identifier: Apache-2.0
#include "base/config/load.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "base/config/config_test.pb.h"
#include "base/stdx/bytes.h"

namespace weir {
namespace {

class Load : public ::testing::Test {
 protected:
  absl::Status LoadText(const std::string& text, std::vector<std::string> sets = {}) {
    const std::string file = ::testing::TempDir() + "/weir_load_test.yaml";
    std::ofstream(file) << text;
    settings_.Clear();
    return LoadConfig({.file = file, .sets = std::move(sets)}, check_, &settings_);
  }
  static std::string Message(const absl::Status& status) {
    return std::string(StdView(status.message()));
  }

  ConfigCheck check_;
  test::Settings settings_;
};

TEST_F(Load, ReadsYamlAndJson) {
  ASSERT_TRUE(LoadText("server:\n  address: here\n  port: 7\n  tls: true\n  peers: [a, b]\n").ok());
  EXPECT_EQ(settings_.server().address(), "here");
  EXPECT_EQ(settings_.server().port(), 7u);
  EXPECT_TRUE(settings_.server().tls());
  EXPECT_EQ(settings_.server().peers_size(), 2);
  ASSERT_TRUE(LoadText("{\"server\": {\"port\": 8, \"offset\": -3, \"ratio\": 0.5}}").ok());
  EXPECT_EQ(settings_.server().port(), 8u);
  EXPECT_EQ(settings_.server().offset(), -3);
}

TEST_F(Load, TellsEveryProblemWithItsLine) {
  check_ = [](std::vector<std::string>* problems) {
    problems->push_back("server.port: in use");
    problems->push_back("server.offset must be from 1 to 2, not 3");
    problems->push_back("server.ratio is required");
  };
  const absl::Status status =
      LoadText("server:\n  adress: x\n  port: -1\n  tls: maybe\nbytes_max: [1]\n",
               {"server.offset=3"});
  EXPECT_EQ(ReasonOf(status), Reason::kBadField);
  const std::string text = Message(status);
  EXPECT_NE(text.find(":2: unknown setting server.adress; did you mean address?"), std::string::npos)
      << text;
  EXPECT_NE(text.find(":3: server.port must be a whole number"), std::string::npos) << text;
  EXPECT_NE(text.find(":4: server.tls must be true or false"), std::string::npos) << text;
  EXPECT_NE(text.find(":5: bytes_max must be a single value"), std::string::npos) << text;
  EXPECT_EQ(text.find("server.port: in use"), std::string::npos) << "it was not read: " << text;
  EXPECT_NE(text.find("--set: server.offset must be from 1"), std::string::npos) << text;
  EXPECT_NE(text.find("\nserver.ratio is required"), std::string::npos) << text;
}

TEST_F(Load, WhatTheCheckFindsHasTheLine) {
  check_ = [](std::vector<std::string>* problems) {
    problems->push_back("server.port must be from 1 to 10, not 11");
    problems->push_back("server.peers: nobody is at x");
  };
  const std::string text = Message(LoadText("server:\n  port: 11\n  peers: [x]\n"));
  EXPECT_NE(text.find("yaml:2: server.port must be from 1"), std::string::npos) << text;
  EXPECT_NE(text.find("yaml:3: server.peers: nobody"), std::string::npos) << text;
}

TEST_F(Load, NumbersSayWhatTheyMustBe) {
  const auto refusal = [this](const std::string& value) {
    return Message(LoadText("", {"server.port=" + value}));
  };
  EXPECT_EQ(refusal("many"), "--set: server.port must be a whole number, not \"many\"");
  EXPECT_EQ(refusal("-1"), "--set: server.port must be a whole number of at least 0, not \"-1\"");
  EXPECT_EQ(refusal("4294967296"),
            "--set: server.port must be a whole number of at most 4294967295, not \"4294967296\"");
}

TEST_F(Load, AKeyGivenTwiceIsAProblem) {
  const std::string text = Message(LoadText("server:\n  port: 7\n  tls: true\n  port: 8\n"));
  EXPECT_NE(text.find(":4: server.port is given twice"), std::string::npos) << text;
}

TEST_F(Load, FlagsAreTextAndWin) {
  settings_.Clear();
  const ConfigSources sources{.sets = {"server.address=set"},
                              .flags = {{"--address", "server.address", "a: b"}}};
  ASSERT_TRUE(LoadConfig(sources, nullptr, &settings_).ok());
  EXPECT_EQ(settings_.server().address(), "a: b");
}

TEST_F(Load, OverlaysWinInOrder) {
  setenv("WEIR_SERVER__PORT", "9", 1);
  setenv("WEIR_SERVER__ADDRESS", "from environment", 1);
  ASSERT_TRUE(LoadText("server: {port: 7, address: file}", {"server.port=10", "server.peers=[x]"})
                  .ok());
  unsetenv("WEIR_SERVER__PORT");
  unsetenv("WEIR_SERVER__ADDRESS");
  EXPECT_EQ(settings_.server().port(), 10u);
  EXPECT_EQ(settings_.server().address(), "from environment");
  EXPECT_EQ(settings_.server().peers(0), "x");
}

TEST_F(Load, OverlayProblemsNameTheOverlay) {
  const std::string text = Message(LoadText("", {"server.prot=1", "nonsense", "bytes_max.x=1"}));
  EXPECT_NE(text.find("--set: unknown setting server.prot; did you mean port?"), std::string::npos)
      << text;
  EXPECT_NE(text.find("--set nonsense: must be section.key=value"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes_max has no settings below it"), std::string::npos) << text;
}

TEST_F(Load, BrokenAndMissingFilesAreProblems) {
  EXPECT_FALSE(LoadText("server: [unclosed").ok());
  // Nothing is said of what the file might have held.
  check_ = [](std::vector<std::string>* all) { all->push_back("server.port is required"); };
  EXPECT_EQ(Message(LoadConfig({.file = "/nonexistent/x.yaml"}, check_, &settings_)),
            "/nonexistent/x.yaml: cannot be read");
}

TEST_F(Load, DumpShowsEverySetting) {
  ASSERT_TRUE(LoadText("server: {port: 7}").ok());
  EXPECT_EQ(DumpConfig(settings_),
            "server:\n  address: \"\"\n  port: 7\n  tls: false\n  peers: []\n  offset: 0\n"
            "  ratio: 0\nbytes_max: 0\n");
}

TEST_F(Load, ChangedSettingsAreNamed) {
  ASSERT_TRUE(LoadText("server: {port: 7, peers: [a]}").ok());
  const test::Settings before = settings_;
  ASSERT_TRUE(LoadText("server: {port: 8, peers: [a, b]}\nbytes_max: 5").ok());
  EXPECT_EQ(ChangedSettings(before, settings_),
            (std::vector<std::string>{"server.port", "server.peers", "bytes_max"}));
  EXPECT_TRUE(ChangedSettings(settings_, settings_).empty());
}

TEST_F(Load, DumpReadsBack) {
  ASSERT_TRUE(LoadText("server: {port: 7, address: \"a: b\", peers: [p, q]}\nbytes_max: 5").ok());
  const test::Settings before = settings_;
  ASSERT_TRUE(LoadText(DumpConfig(before)).ok());
  EXPECT_EQ(settings_.SerializeAsString(), before.SerializeAsString());
}

}  // namespace
}  // namespace weir
