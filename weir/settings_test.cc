// SPDX-License-Identifier: Apache-2.0
#include "weir/settings.h"

#include <sys/stat.h>

#include <fstream>

#include <gtest/gtest.h>

#include "base/stdx/bytes.h"

namespace weir {
namespace {

constexpr Roles kServe{.router = true, .prefill = true, .decode = true};

class Settings : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/weir_settings_test";
    mkdir(directory_.c_str(), 0700);
    Write("config.json", "{}");
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  ServiceArgs Args(std::vector<std::string> sets = {}) {
    ServiceArgs args;
    args.model = directory_;
    args.sets = std::move(sets);
    return args;
  }
  static std::string Refusal(const ServiceArgs& args, const Roles& roles = kServe) {
    return std::string(StdView(LoadSettings(args, roles).status().message()));
  }

  std::string directory_;
};

TEST_F(Settings, DefaultsAreFilledIn) {
  const absl::StatusOr<v1::Config> config = LoadSettings(Args(), kServe);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model().name(), "weir_settings_test");
  EXPECT_EQ(config->router().http_address(), "127.0.0.1:8080");
  EXPECT_EQ(config->router().attempts_max(), 3u);
  EXPECT_EQ(config->prefill().slots(), 64u);
  EXPECT_EQ(config->decode().slots(), 256u);
  EXPECT_EQ(config->decode().transfer(), "auto");
}

TEST_F(Settings, VendorNumericsRunOnTheReferenceKernels) {
  const absl::StatusOr<v1::Config> config = LoadSettings(Args({"model.numerics=vendor"}), kServe);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model().backend(), "ref");
  EXPECT_EQ(Refusal(Args({"model.numerics=vendor", "model.backend=cpu"})),
            "--set: model.backend must be ref where model.numerics is vendor");
}

TEST_F(Settings, ThePortReplacesThatOfTheAddress) {
  ServiceArgs args = Args({"router.http_address='[::1]:80'"});
  args.port = 81;
  const absl::StatusOr<v1::Config> config = LoadSettings(args, kServe);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->router().http_address(), "[::1]:81");
  const absl::StatusOr<HostPort> parsed = ParseHostPort("[::1]:81", "x");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->host, "::1");
}

// What would fail at start is refused by the check, with the setting's name.
TEST_F(Settings, WhatWouldFailAtStartIsRefused) {
  const struct {
    const char* set;
    const char* problem;
  } cases[] = {
      {"router.attempts_max=11", "--set: router.attempts_max must be from 1 to 10, not 11"},
      {"router.template=v9", "router.template: a prompt template is one of"},
      {"router.http_address=localhost:80", "router.http_address must begin with an IP address"},
      {"router.http_address=80", "router.http_address must be host:port"},
      {"router.tls_key=/nonexistent.pem", "router.tls_key: /nonexistent.pem cannot be read"},
      {"router.tls_key=/nonexistent.pem", "router.tls_key needs router.tls_certificate"},
      {"decode.peer_address=somehost:0", "decode.peer_address must begin with an IP address"},
      {"decode.admin_address=somehost:0", "decode.admin_address must begin with an IP address"},
      {"decode.transfer=rdma", "decode.transfer must be one of auto, shm, ucx, not \"rdma\""},
      {"log.trace_directory=/nonexistent", "log.trace_directory: /nonexistent is not a directory"},
      {"log.level=loud", "log.level must be one of debug, info, warn, error, not \"loud\""},
      {"model.numerics=fp8", "model.numerics must be one of"},
      {"model.backend=gpu", "model.backend must be one of cpu, ref, not \"gpu\""},
  };
  for (const auto& one : cases) {
    const std::string refusal = Refusal(Args({one.set}));
    EXPECT_NE(refusal.find(one.problem), std::string::npos) << one.set << ": " << refusal;
  }
  EXPECT_EQ(Refusal(Args({"decode.peer_address=localhost:0"})), "");
}

TEST_F(Settings, AModelAndRoutersAreRequired) {
  EXPECT_EQ(Refusal({}).rfind("model.path is required", 0), 0u);
  ServiceArgs args = Args();
  args.model = "/nonexistent";
  EXPECT_EQ(Refusal(args), "--model: model.path: /nonexistent has no config.json");
  EXPECT_EQ(Refusal(Args(), {.decode = true}).rfind("decode.routers is required", 0), 0u);
}

TEST_F(Settings, ReloadTakesOverWhatIsReloadableAndNothingElse) {
  ServiceArgs args = Args();
  args.config_file = Write("c.yaml", "router: {deadline_ms: 1000, requests_max: 5}\n");
  const absl::StatusOr<v1::Config> config = LoadSettings(args, kServe);
  ASSERT_TRUE(config.ok()) << config.status();
  Reloader reloader(args, kServe, *config);
  Write("c.yaml", "router: {deadline_ms: 2000, requests_max: 6, api_keys: [k]}\n");
  const std::optional<v1::Config> fresh = reloader.Reload();
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fresh->router().deadline_ms(), 2000u);
  EXPECT_EQ(fresh->router().api_keys_size(), 1);
  EXPECT_EQ(fresh->router().requests_max(), 5u);
  Write("c.yaml", "router: {deadline_ms: never}\n");
  EXPECT_FALSE(reloader.Reload());
}

}  // namespace
}  // namespace weir
