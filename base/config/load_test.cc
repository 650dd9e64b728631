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
  check_ = [](std::vector<std::string>* problems) { problems->push_back("server.port: in use"); };
  const absl::Status status =
      LoadText("server:\n  adress: x\n  port: -1\n  tls: maybe\nbytes_max: [1]\n");
  EXPECT_EQ(ReasonOf(status), Reason::kBadField);
  const std::string text = Message(status);
  EXPECT_NE(text.find(":2: unknown setting server.adress; did you mean address?"), std::string::npos)
      << text;
  EXPECT_NE(text.find(":3: server.port must be a whole number"), std::string::npos) << text;
  EXPECT_NE(text.find(":4: server.tls must be true or false"), std::string::npos) << text;
  EXPECT_NE(text.find(":5: bytes_max must be a single value"), std::string::npos) << text;
  EXPECT_NE(text.find("server.port: in use"), std::string::npos) << text;
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
  EXPECT_FALSE(LoadConfig({.file = "/nonexistent/x.yaml"}, nullptr, &settings_).ok());
}

TEST_F(Load, DumpReadsBack) {
  ASSERT_TRUE(LoadText("server: {port: 7, address: \"a: b\", peers: [p, q]}\nbytes_max: 5").ok());
  const test::Settings before = settings_;
  ASSERT_TRUE(LoadText(DumpConfig(before)).ok());
  EXPECT_EQ(settings_.SerializeAsString(), before.SerializeAsString());
}

}  // namespace
}  // namespace weir
