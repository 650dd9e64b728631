// SPDX-License-Identifier: Apache-2.0
//
// The shell around a core that writes down what it hears, with peers that misbehave, over the
// channel's twin in memory.
#include "engine/run/engine_service.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "base/net/mem_channel.h"

namespace weir::engine {
namespace {

constexpr Duration kLimit = std::chrono::seconds(20);
constexpr char kEngine[] = "mem:engine";
constexpr char kRouter[] = "mem:router";

// What happened, for a test that waits for it.
struct Diary {
  std::mutex mu;
  std::condition_variable changed;
  int peers_up = 0, peers_down = 0, messages = 0;  // as the core heard of them
  int links_up = 0, links_down = 0, refused = 0;   // as the peers saw them

  void Note(int Diary::*what) {
    std::lock_guard lock(mu);
    ++(this->*what);
    changed.notify_all();
  }
  bool Wait(int Diary::*what, int count) {
    std::unique_lock lock(mu);
    return changed.wait_for(lock, kLimit, [&] { return this->*what >= count; });
  }
  int Get(int Diary::*what) {
    std::lock_guard lock(mu);
    return this->*what;
  }
};

class WritingCore final : public EngineCore {
 public:
  explicit WritingCore(Diary* diary) : diary_(*diary) {}
  void On(Instant, const EngineEvent& event, EngineActions* out) override {
    if (std::holds_alternative<PeerUp>(event)) diary_.Note(&Diary::peers_up);
    if (std::holds_alternative<PeerDown>(event)) diary_.Note(&Diary::peers_down);
    const auto* received = std::get_if<Received>(&event);
    if (received == nullptr) return;
    // As many dials as the message says.
    for (uint64_t i = 0; i < received->message.load().queued_tokens(); ++i) {
      out->dials.push_back({.instance = InstanceId(1000 + i), .address = "mem:nobody"});
    }
    diary_.Note(&Diary::messages);
  }
  Instant NextDeadline() const override { return kNever; }
  EngineState State() const override { return {}; }

 private:
  Diary& diary_;
};

class Peer final : public Channel::Handler {
 public:
  Peer(MemHub* hub, Diary* diary, std::string listen, std::optional<uint64_t> hello,
       pb::RoleKind role = pb::ROLE_KIND_PREFILL)
      : diary_(*diary), hello_(hello), role_(role) {
    Channel::Options options;
    options.listen_address = std::move(listen);
    channel_ = *hub->Create(options, this);
  }
  ~Peer() override { channel_->Shutdown(); }

  void Dial() { channel_->Dial(kEngine); }
  void Say(std::string bytes) {
    std::lock_guard lock(mu_);
    ASSERT_TRUE(channel_->Send(link_, std::move(bytes)));
  }
  void SayLoad(uint64_t dials) {
    pb::Envelope message;
    message.mutable_load()->set_queued_tokens(dials);
    Say(message.SerializeAsString());
  }

 private:
  void OnUp(PeerId peer, std::string_view) override {
    {
      std::lock_guard lock(mu_);
      link_ = peer;
    }
    if (hello_) {
      pb::Envelope message;
      pb::Hello* hello = message.mutable_hello();
      hello->set_protocol_min(1);
      hello->set_protocol_max(1);
      hello->set_instance(*hello_);
      hello->set_role(role_);
      Say(message.SerializeAsString());
    }
    diary_.Note(&Diary::links_up);
  }
  void OnDown(PeerId, const absl::Status&) override { diary_.Note(&Diary::links_down); }
  bool OnMessage(PeerId, std::string&& bytes) override {
    pb::Envelope message;
    EXPECT_TRUE(message.ParseFromString(bytes));
    if (message.has_hello_refused()) diary_.Note(&Diary::refused);
    return true;
  }

  Diary& diary_;
  const std::optional<uint64_t> hello_;
  const pb::RoleKind role_;
  std::mutex mu_;
  PeerId link_;  // guarded by mu_; the newest
  std::unique_ptr<Channel> channel_;
};

class EngineServiceTest : public testing::Test {
 protected:
  void Start(Duration hello_within, std::vector<std::string> routers = {}) {
    EngineServiceOptions options;
    options.role = Role::kDecode;
    options.instance = InstanceId(7);
    options.listen_address = kEngine;
    options.routers = std::move(routers);
    options.core = std::make_unique<WritingCore>(&diary_);
    options.dial_timeout = hello_within;
    options.redial_after = Millis(1);
    options.redial_max = Millis(4);
    options.make_channel = [this](Channel::Options channel, Channel::Handler* handler) {
      return hub_.Create(std::move(channel), handler);
    };
    auto service = EngineService::Create(std::move(options));
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    service_->Start();
  }

  MemHub hub_;
  Diary diary_;
  std::unique_ptr<EngineService> service_;
};

TEST_F(EngineServiceTest, RouterThatTalksNonsenseIsDialledAnew) {
  Peer router(&hub_, &diary_, kRouter, 1, pb::ROLE_KIND_ROUTER);
  Start(kLimit, {kRouter});
  ASSERT_TRUE(diary_.Wait(&Diary::peers_up, 1));
  router.Say("\xff\xff\xff");
  ASSERT_TRUE(diary_.Wait(&Diary::peers_down, 1));
  ASSERT_TRUE(diary_.Wait(&Diary::peers_up, 2));
  router.SayLoad(0);
  EXPECT_TRUE(diary_.Wait(&Diary::messages, 1));
}

TEST_F(EngineServiceTest, RouterThatDoesNotTakeTheProtocolIsAskedAgainAndAgain) {
  // Words before Hello: the engine lets go of the link.
  Peer router(&hub_, &diary_, kRouter, std::nullopt);
  Start(kLimit, {kRouter});
  ASSERT_TRUE(diary_.Wait(&Diary::links_up, 1));
  router.SayLoad(0);
  EXPECT_TRUE(diary_.Wait(&Diary::links_up, 2));
  EXPECT_EQ(diary_.Get(&Diary::peers_up), 0);
}

TEST_F(EngineServiceTest, RouterThatRefusesIsAskedAgainAndMayTakeItThen) {
  Peer router(&hub_, &diary_, kRouter, 1, pb::ROLE_KIND_ROUTER);
  Start(kLimit, {kRouter});
  pb::Envelope refusal;
  refusal.mutable_hello_refused()->mutable_failure()->set_message("another checkpoint");
  for (int i = 1; i <= 4; ++i) {
    ASSERT_TRUE(diary_.Wait(&Diary::links_up, i));
    router.Say(refusal.SerializeAsString());
    ASSERT_TRUE(diary_.Wait(&Diary::peers_down, i));
  }
  ASSERT_TRUE(diary_.Wait(&Diary::links_up, 5));
  router.SayLoad(0);
  EXPECT_TRUE(diary_.Wait(&Diary::messages, 1));
}

TEST_F(EngineServiceTest, PeerWithoutHelloIsDroppedInTime) {
  Start(Millis(20));
  Peer silent(&hub_, &diary_, "", std::nullopt);
  silent.Dial();
  EXPECT_TRUE(diary_.Wait(&Diary::links_down, 1));
  EXPECT_EQ(diary_.Get(&Diary::peers_up), 0);
}

TEST_F(EngineServiceTest, SecondLinkOfAnInstanceIsRefusedAndTheFirstLives) {
  Start(kLimit);
  Peer first(&hub_, &diary_, "", 5);
  first.Dial();
  ASSERT_TRUE(diary_.Wait(&Diary::peers_up, 1));
  Peer second(&hub_, &diary_, "", 5);
  second.Dial();
  ASSERT_TRUE(diary_.Wait(&Diary::refused, 1));
  first.SayLoad(0);
  EXPECT_TRUE(diary_.Wait(&Diary::messages, 1));
  EXPECT_EQ(diary_.Get(&Diary::peers_down), 0);
}

TEST_F(EngineServiceTest, PeerMayNotCallItselfByOurOwnName) {
  Start(kLimit);
  Peer mirror(&hub_, &diary_, "", 7);
  mirror.Dial();
  EXPECT_TRUE(diary_.Wait(&Diary::refused, 1));
}

TEST_F(EngineServiceTest, DialsBeyondTheLimitCountAsLostAtOnce) {
  Start(kLimit);
  Peer peer(&hub_, &diary_, "", 5);
  peer.Dial();
  ASSERT_TRUE(diary_.Wait(&Diary::peers_up, 1));
  peer.SayLoad(300);
  EXPECT_TRUE(diary_.Wait(&Diary::peers_down, 300 - 256));
}

}  // namespace
}  // namespace weir::engine
