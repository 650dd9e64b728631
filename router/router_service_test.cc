// SPDX-License-Identifier: Apache-2.0
//
// A whole router on a real port, with engines played over the channel's twin in memory.
#include "router/router_service.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include <nlohmann/json.hpp>

#include "base/net/http_client.h"
#include "base/net/mem_channel.h"
#include "base/runtime/clock.h"
#include "codec/token/tokenizer.h"

namespace weir::router {
namespace {

namespace pb = ::weir::v1;
using Json = nlohmann::json;

constexpr Duration kLimit = std::chrono::seconds(20);

// Registers, and as a decode engine answers every reservation with the whole answer.
class Engine final : public Channel::Handler {
 public:
  Engine(MemHub* hub, uint64_t instance, pb::RoleKind role, uint32_t protocol = 1, int hellos = 1)
      : instance_(instance), role_(role), protocol_(protocol), hellos_(hellos) {
    channel_ = *hub->Create({}, this);
    channel_->Dial("mem:router");
  }
  ~Engine() override { channel_->Shutdown(); }

  bool WaitRefused() {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, kLimit, [this] { return refused_; });
  }
  void Report(bool draining) {
    pb::Envelope message;
    message.mutable_load()->set_draining(draining);
    std::lock_guard lock(mu_);
    EXPECT_TRUE(channel_->Send(peer_, message.SerializeAsString()));
  }
  std::string refusal() {
    std::lock_guard lock(mu_);
    return refusal_;
  }

 private:
  void OnUp(PeerId peer, std::string_view) override {
    {
      std::lock_guard lock(mu_);
      peer_ = peer;
    }
    pb::Envelope message;
    pb::Hello* hello = message.mutable_hello();
    hello->set_protocol_min(protocol_);
    hello->set_protocol_max(protocol_);
    hello->set_instance(instance_);
    hello->set_role(role_);
    hello->mutable_geometry()->set_vocab(1000);
    hello->mutable_geometry()->set_positions_max(100);
    for (int i = 0; i < hellos_; ++i) {
      hello->set_instance(instance_ + static_cast<uint64_t>(i));
      ASSERT_TRUE(channel_->Send(peer, message.SerializeAsString()));
    }
  }
  void OnDown(PeerId, const absl::Status&) override {}
  bool OnMessage(PeerId peer, std::string&& bytes) override {
    pb::Envelope message;
    EXPECT_TRUE(message.ParseFromString(bytes));
    if (message.has_hello_refused()) {
      std::lock_guard lock(mu_);
      refused_ = true;
      refusal_ = message.hello_refused().failure().message();
      changed_.notify_all();
    }
    if (!message.has_reserve()) return true;
    pb::Envelope reserved;
    *reserved.mutable_reserved()->mutable_key() = message.reserve().key();
    (void)channel_->Send(peer, reserved.SerializeAsString());
    pb::Envelope tokens;
    pb::TokenRow* row = tokens.mutable_tokens()->add_rows();
    *row->mutable_key() = message.reserve().key();
    row->set_position(message.reserve().token_count());
    for (uint32_t i = 0; i < message.reserve().new_tokens_max(); ++i) {
      row->add_ids(static_cast<int>(20 + i));
    }
    row->set_finish(pb::FINISH_REASON_LENGTH);
    (void)channel_->Send(peer, tokens.SerializeAsString());
    return true;
  }

  const uint64_t instance_;
  const pb::RoleKind role_;
  const uint32_t protocol_;
  const int hellos_;
  std::mutex mu_;
  std::condition_variable changed_;
  PeerId peer_;               // guarded by mu_
  bool refused_ = false;      // guarded by mu_
  std::string refusal_;       // guarded by mu_
  std::unique_ptr<Channel> channel_;
};

class RouterServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RouterServiceOptions options;
    options.config.set_http_address("127.0.0.1:0");
    options.config.set_silence_ms(silence_ms_);
    options.model.name = "toy";
    options.model.renderer =
        codec::Renderer::WithoutChat(codec::Tokenizer::IdsOnly(1000, 0, 1), 1000);
    options.make_channel = [this](Channel::Options channel, Channel::Handler* handler) {
      return hub_.Create(std::move(channel), handler);
    };
    options.listen_address = "mem:router";
    options.instance = InstanceId{7};
    options.metrics = &metrics_;
    options.watch = &watch_;
    options.more_state = [] { return "\"decode\":{\"slots_used\":0}"; };
    auto service = RouterService::Create(std::move(options));
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    service_->Start();
  }
  void TearDown() override { service_->Stop(); }

  HttpAnswer Fetch(const std::string& path, std::string body = {}) {
    HttpCall call;
    call.url = "http://127.0.0.1:" + std::to_string(service_->http_port()) + path;
    if (!body.empty()) {
      call.method = "POST";
      call.body = std::move(body);
    }
    auto answer = HttpFetch(call);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : HttpAnswer{};
  }
  bool WaitReady() {
    for (const Instant end = Now() + kLimit; Now() < end;) {
      if (Fetch("/health/ready").status == 200) return true;
    }
    return false;
  }

  uint32_t silence_ms_ = 0;
  MemHub hub_;
  Metrics metrics_;
  ProgressWatch watch_;
  std::unique_ptr<RouterService> service_;
};

TEST_F(RouterServiceTest, ServesOnceEnginesOfBothRolesAreThere) {
  EXPECT_EQ(Fetch("/health/live").status, 200);
  EXPECT_EQ(Fetch("/health/ready").status, 503);
  EXPECT_FALSE(service_->ready());
  Engine prefill(&hub_, 11, pb::ROLE_KIND_PREFILL);
  Engine decode(&hub_, 21, pb::ROLE_KIND_DECODE);
  ASSERT_TRUE(WaitReady());
  EXPECT_TRUE(service_->ready());

  const HttpAnswer answer = Fetch("/v1/completions", R"({"prompt":[5,6],"max_tokens":3})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(FindHeader(answer.headers, "x-request-id"), nullptr);
  const Json body = Json::parse(answer.body);
  EXPECT_EQ(body.at("choices")[0].at("text"), " 20 21 22");
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 2);

  const HttpAnswer too_long = Fetch("/v1/completions", R"({"prompt":[5,6],"max_tokens":99})");
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(Json::parse(too_long.body).at("error").at("code"), "context_length_exceeded");

  const Json state = Json::parse(Fetch("/debug/state").body);
  EXPECT_EQ(state.at("router").at("requests"), 0);
  EXPECT_EQ(state.at("router").at("succeeded"), 1);
  EXPECT_EQ(state.at("router").at("instances").size(), 2u);
  EXPECT_EQ(state.at("decode").at("slots_used"), 0);
  EXPECT_NE(Fetch("/metrics").body.find("weir_router_requests_total{outcome=\"succeeded\"} 1"),
            std::string::npos);
}

TEST_F(RouterServiceTest, EngineOfAnotherProtocolIsTold) {
  Engine strange(&hub_, 11, pb::ROLE_KIND_PREFILL, 9);
  ASSERT_TRUE(strange.WaitRefused());
  EXPECT_NE(strange.refusal().find("protocol"), std::string::npos);
}

TEST_F(RouterServiceTest, OneLinkIsOneInstance) {
  Engine legion(&hub_, 11, pb::ROLE_KIND_PREFILL, 1, /*hellos=*/3);
  ASSERT_TRUE(legion.WaitRefused());
  EXPECT_EQ(legion.refusal(), "Hello was said already");
}

TEST_F(RouterServiceTest, LosesAnEngineWithItsLink) {
  Engine prefill(&hub_, 11, pb::ROLE_KIND_PREFILL);
  {
    Engine decode(&hub_, 21, pb::ROLE_KIND_DECODE);
    ASSERT_TRUE(WaitReady());
  }
  int status = 200;
  for (const Instant end = Now() + kLimit; status == 200 && Now() < end;) {
    status = Fetch("/health/ready").status;
  }
  EXPECT_EQ(status, 503);
}

class SilentRouterServiceTest : public RouterServiceTest {
 protected:
  SilentRouterServiceTest() { silence_ms_ = 100; }
};

TEST_F(SilentRouterServiceTest, GivesUpAnEngineThatReportsNothing) {
  Engine hung(&hub_, 11, pb::ROLE_KIND_PREFILL);
  ASSERT_TRUE(hung.WaitRefused());
  EXPECT_EQ(hung.refusal(), "the engine reported nothing for 100 ms");
}

TEST_F(RouterServiceTest, AnEngineThatDrainsDoesNotMakeItReady) {
  Engine prefill(&hub_, 11, pb::ROLE_KIND_PREFILL);
  Engine decode(&hub_, 21, pb::ROLE_KIND_DECODE);
  ASSERT_TRUE(WaitReady());
  decode.Report(/*draining=*/true);
  HttpAnswer answer{};
  for (const Instant end = Now() + kLimit; answer.status != 503 && Now() < end;) {
    answer = Fetch("/health/ready");
  }
  EXPECT_EQ(answer.body, "no decode engine takes work (1 is draining)\n");
  EXPECT_FALSE(service_->ready());
  decode.Report(/*draining=*/false);
  EXPECT_TRUE(WaitReady());
}

TEST_F(RouterServiceTest, DrainWithNothingRunningIsThroughAtOnce) {
  std::mutex mu;
  std::condition_variable changed;
  bool drained = false;
  service_->Drain(Now() + std::chrono::seconds(60), [&] {
    std::lock_guard lock(mu);
    drained = true;
    changed.notify_all();
  });
  EXPECT_FALSE(service_->ready());
  std::unique_lock lock(mu);
  EXPECT_TRUE(changed.wait_for(lock, kLimit, [&] { return drained; }));
}

TEST(RouterServiceOpen, BadAddressesAreNamed) {
  RouterServiceOptions options;
  options.config.set_http_address("nonsense");
  options.model.renderer =
      codec::Renderer::WithoutChat(codec::Tokenizer::IdsOnly(10, 0, 1), 10);
  options.instance = InstanceId{7};
  const auto service = RouterService::Create(std::move(options));
  EXPECT_EQ(ParamOf(service.status()), "router.http_address");
}

}  // namespace
}  // namespace weir::router
