// SPDX-License-Identifier: Apache-2.0
#include "base/obs/admin.h"

#include <future>

#include "base/net/http_client.h"
#include "base/runtime/clock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr Instant At(int64_t ms) { return Instant(Millis(ms)); }

TEST(Progress, StallsOnlyWhileWorkWaits) {
  Progress progress;
  EXPECT_EQ(progress.StalledFor(At(100'000)), Duration::zero());
  progress.SetPending(At(1000), 2);
  EXPECT_EQ(progress.StalledFor(At(1500)), Millis(500));
  progress.Advance(At(1600));
  progress.SetPending(At(1700), 1);  // still some: the clock goes on
  EXPECT_EQ(progress.StalledFor(At(1800)), Millis(200));
  progress.SetPending(At(1900), 0);
  EXPECT_EQ(progress.StalledFor(At(9000)), Duration::zero());
}

TEST(Health, ReadyMeansStartedMovingAndNotDraining) {
  Health health;
  Progress& steps = health.AddProgress("decode steps", Millis(1000));
  bool connected = true;
  health.AddCheck("decode", [&] {
    return connected ? absl::OkStatus() : Error(Reason::kPeerLost, "no decode process");
  });
  EXPECT_EQ(health.Ready(At(0)).message(), "starting");
  health.SetStarted();
  EXPECT_TRUE(health.Ready(At(0)).ok());
  steps.SetPending(At(1000), 1);
  EXPECT_TRUE(health.Ready(At(2000)).ok());
  EXPECT_EQ(health.Ready(At(2001)).message(), "decode steps has work and stood still for 1001 ms");
  EXPECT_TRUE(health.Live(At(2001)).ok());
  EXPECT_FALSE(health.Live(At(11'001)).ok());
  steps.Advance(At(2002));
  EXPECT_TRUE(health.Ready(At(2003)).ok());
  connected = false;
  EXPECT_EQ(health.Ready(At(2003)).message(), "decode: no decode process");
  health.SetDraining();
  EXPECT_EQ(health.Ready(At(2003)).message(), "draining");
}

class AdminTest : public testing::Test {
 protected:
  AdminTest() {
    loop_.Start();
    auto server = HttpServer::Create(
        {}, {&loop_}, [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
          if (!admin_.Serve(request, responder)) responder->Respond(404, {}, "");
        });
    server_ = *std::move(server);
    ExposeHttpServer(server_.get(), {}, &metrics_);
    ExposeLoop(&loop_, &metrics_);
  }
  HttpAnswer Get(const std::string& path) {
    auto answer = HttpFetch({.url = "http://127.0.0.1:" + std::to_string(server_->port()) + path});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : HttpAnswer();
  }

  Loop loop_{{.name = "admin"}};
  Metrics metrics_;
  Health health_;
  Admin admin_{&metrics_, &health_};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(AdminTest, ServesMetricsAndHealth) {
  EXPECT_EQ(Get("/nothing").status, 404);
  EXPECT_EQ(Get("/health/live").status, 200);
  EXPECT_EQ(Get("/health/ready").status, 503);
  health_.SetStarted();
  EXPECT_EQ(Get("/health/ready").body, "{\"status\":\"ok\"}\n");
  health_.SetDraining();
  const HttpAnswer draining = Get("/health/ready");
  EXPECT_EQ(draining.status, 503);
  EXPECT_EQ(draining.body, "{\"status\":\"unavailable\",\"reason\":\"draining\"}\n");
  const std::string text = Get("/metrics").body;
  EXPECT_NE(text.find("weir_http_requests_total "), std::string::npos) << text;
  EXPECT_NE(text.find("weir_loop_turns_total{loop=\"admin\"}"), std::string::npos) << text;
}

TEST_F(AdminTest, CollectsTheStateOfAllAndDoesNotWaitForTheDead) {
  EXPECT_EQ(Get("/debug/state").body, "{}\n");
  admin_.AddState("now", [](auto done) { done("1"); });
  std::future<void> other;
  admin_.AddState("elsewhere", [&](auto done) {
    other = std::async(std::launch::async, [done] { done("{\"slots\":0}"); });
  });
  EXPECT_EQ(Get("/debug/state").body, "{\"now\":1,\"elsewhere\":{\"slots\":0}}\n");
  admin_.AddState("dead", [](auto) {});
  EXPECT_EQ(Get("/debug/state").body, "{\"now\":1,\"elsewhere\":{\"slots\":0},\"dead\":null}\n");
}

}  // namespace
}  // namespace weir
