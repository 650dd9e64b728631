// SPDX-License-Identifier: Apache-2.0
//
// One suite for both channels, then what only a real process can show: death and silence.
#include "base/net/channel.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "base/net/channel_frame.h"
#include "base/net/grpc_channel.h"
#include "base/net/mem_channel.h"
#include "base/runtime/clock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr Duration kLimit = std::chrono::seconds(20);

// Records what a channel says; Wait lets a test wait for it.
class Recorder : public Channel::Handler {
 public:
  void OnUp(PeerId peer, std::string_view address) override {
    Note([&] {
      ups.push_back(peer);
      up_addresses.emplace_back(address);
    });
  }
  void OnDown(PeerId peer, const absl::Status& why) override {
    Note([&] {
      downs.push_back(peer);
      reasons.push_back(why);
    });
  }
  bool OnMessage(PeerId peer, std::string&& bytes) override {
    bool taken = false;
    Note([&] {
      taken = take;
      if (taken) {
        message_bytes += bytes.size();
        messages[peer].push_back(std::move(bytes));
        ++count;
      }
    });
    return taken;
  }
  template <class F>
  void Note(F f) {
    {
      std::lock_guard lock(mu);
      f();
    }
    changed.notify_all();
  }
  template <class F>
  bool Wait(F condition) {
    std::unique_lock lock(mu);
    return changed.wait_for(lock, kLimit, condition);
  }
  PeerId FirstPeer() {
    EXPECT_TRUE(Wait([&] { return !ups.empty(); }));
    std::lock_guard lock(mu);
    return ups.front();
  }

  std::mutex mu;
  std::condition_variable changed;
  std::vector<PeerId> ups, downs;
  std::vector<std::string> up_addresses;
  std::vector<absl::Status> reasons;
  std::map<PeerId, std::vector<std::string>> messages;
  size_t count = 0;
  size_t message_bytes = 0;
  bool take = true;
};

struct GrpcNet {
  std::string AnyAddress() { return "127.0.0.1:0"; }
  std::unique_ptr<Channel> Make(Channel::Options options, Channel::Handler* handler) {
    auto channel = CreateGrpcChannel(std::move(options), handler);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }
  std::string AddressOf(const Channel& channel) {
    return "127.0.0.1:" + std::to_string(channel.listen_port());
  }
  bool AddressIsTaken(const std::string& address, Channel::Handler* handler) {
    const absl::Status status = CreateGrpcChannel({.listen_address = address}, handler).status();
    EXPECT_NE(status.message().find(address + ": Address already in use"),
              absl::string_view::npos)
        << status;
    return ReasonOf(status) == Reason::kBadField;
  }
};

struct MemNet {
  std::string AnyAddress() { return "mem:a"; }
  std::unique_ptr<Channel> Make(Channel::Options options, Channel::Handler* handler) {
    auto channel = hub.Create(std::move(options), handler);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }
  std::string AddressOf(const Channel&) { return "mem:a"; }
  bool AddressIsTaken(const std::string& address, Channel::Handler* handler) {
    return ReasonOf(hub.Create({.listen_address = address}, handler).status()) == Reason::kBadField;
  }
  MemHub hub;
};

template <class Net>
class ChannelTest : public testing::Test {
 protected:
  Channel::Options Options(std::string address = "") {
    return {.listen_address = std::move(address),
            .message_bytes_max = 8u << 20,
            .send_queue_bytes_max = 4u << 20,
            .receive_queue_bytes_max = 1u << 20,
            .redial_first = Millis(5),
            .redial_max = Millis(20)};
  }
  // server_ listens, client_ dialled it, both up.
  void Link() {
    server_ = net_.Make(Options(net_.AnyAddress()), &at_server_);
    address_ = net_.AddressOf(*server_);
    client_ = net_.Make(Options(), &at_client_);
    to_server_ = client_->Dial(address_);
    EXPECT_EQ(at_client_.FirstPeer(), to_server_);
    to_client_ = at_server_.FirstPeer();
  }

  Net net_;
  Recorder at_server_, at_client_;
  std::unique_ptr<Channel> server_, client_;
  std::string address_;
  PeerId to_server_, to_client_;
};
using Nets = testing::Types<GrpcNet, MemNet>;
TYPED_TEST_SUITE(ChannelTest, Nets);

TYPED_TEST(ChannelTest, CarriesMessagesBothWaysInOrder) {
  this->Link();
  EXPECT_EQ(this->at_client_.up_addresses.front(), this->address_);
  EXPECT_EQ(this->at_server_.up_addresses.front(), "");
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(this->client_->Send(this->to_server_, std::to_string(i)));
    ASSERT_TRUE(this->server_->Send(this->to_client_, std::to_string(-i)));
  }
  EXPECT_TRUE(this->client_->Send(this->to_server_, ""));
  ASSERT_TRUE(this->at_server_.Wait([&] { return this->at_server_.count == 2001; }));
  ASSERT_TRUE(this->at_client_.Wait([&] { return this->at_client_.count == 2000; }));
  for (int i = 0; i < 2000; ++i) {
    EXPECT_EQ(this->at_server_.messages[this->to_client_][i], std::to_string(i));
    EXPECT_EQ(this->at_client_.messages[this->to_server_][i], std::to_string(-i));
  }
  EXPECT_EQ(this->at_server_.messages[this->to_client_].back(), "");
}

TYPED_TEST(ChannelTest, CarriesLongMessagesUpToTheLimit) {
  this->Link();
  std::string large(8u << 20, 'a');
  for (size_t i = 0; i < large.size(); i += 4097) large[i] = static_cast<char>(i);
  EXPECT_FALSE(this->client_->Send(this->to_server_, large + "b"));
  EXPECT_TRUE(this->client_->Send(this->to_server_, "small"));
  ASSERT_TRUE(this->at_server_.Wait([&] { return this->at_server_.count == 1; }));
  EXPECT_TRUE(this->client_->Send(this->to_server_, large));
  ASSERT_TRUE(this->at_server_.Wait([&] { return this->at_server_.count == 2; }));
  EXPECT_TRUE(this->at_server_.messages[this->to_client_][1] == large);
}

TYPED_TEST(ChannelTest, SaysNoWhenFullAndDeliversTheRestOnceThereIsRoom) {
  this->Link();
  this->at_server_.Note([&] { this->at_server_.take = false; });
  size_t sent = 0;
  const Instant limit = Now() + kLimit;
  while (this->client_->Send(this->to_server_, std::string(100'000, 'x'))) {
    ++sent;
    ASSERT_LT(Now(), limit);
  }
  EXPECT_GE(sent, 30u);
  EXPECT_EQ(this->at_server_.count, 0u);
  this->at_server_.Note([&] { this->at_server_.take = true; });
  ASSERT_TRUE(this->at_server_.Wait([&] { return this->at_server_.count == sent; }));
  EXPECT_TRUE(this->client_->Send(this->to_server_, "again"));
}

TYPED_TEST(ChannelTest, ClosingEndsBothSides) {
  this->Link();
  EXPECT_TRUE(this->client_->Send(this->to_server_, "last words"));
  this->client_->Close(this->to_server_);
  EXPECT_FALSE(this->client_->Send(this->to_server_, "too late"));
  ASSERT_TRUE(this->at_server_.Wait([&] { return this->at_server_.downs.size() == 1; }));
  EXPECT_EQ(this->at_server_.downs[0], this->to_client_);
  EXPECT_EQ(ReasonOf(this->at_server_.reasons[0]), Reason::kPeerLost);
  EXPECT_EQ(this->at_server_.messages[this->to_client_].size(), 1u);
  EXPECT_FALSE(this->server_->Send(this->to_client_, "gone"));
  // The server side hangs up on a new link; the dialler comes back.
  const PeerId again = this->client_->Dial(this->address_);
  ASSERT_TRUE(this->at_server_.Wait([&] { return this->at_server_.ups.size() == 2; }));
  this->server_->Close(this->at_server_.ups[1]);
  ASSERT_TRUE(this->at_client_.Wait([&] {
    return this->at_client_.downs.size() == 1 && this->at_client_.ups.size() == 3;
  }));
  EXPECT_EQ(this->at_client_.downs[0], again);
  EXPECT_EQ(this->at_client_.ups[2], again);
}

TYPED_TEST(ChannelTest, RedialsUntilThePeerIsBack) {
  this->Link();
  this->server_->Shutdown();
  ASSERT_TRUE(this->at_client_.Wait([&] { return this->at_client_.downs.size() == 1; }));
  EXPECT_FALSE(this->client_->Send(this->to_server_, "nobody there"));
  Recorder again;
  auto second = this->net_.Make(this->Options(this->address_), &again);
  ASSERT_TRUE(this->at_client_.Wait([&] { return this->at_client_.ups.size() == 2; }));
  EXPECT_EQ(this->at_client_.ups[1], this->to_server_);
  EXPECT_TRUE(this->client_->Send(this->to_server_, "hello again"));
  EXPECT_TRUE(again.Wait([&] { return again.count == 1; }));
}

TYPED_TEST(ChannelTest, TakenAddressIsABadField) {
  this->Link();
  EXPECT_TRUE(this->net_.AddressIsTaken(this->address_, &this->at_client_));
}

TYPED_TEST(ChannelTest, UsesTheCallersLoop) {
  Loop loop({.name = "mine"});
  loop.Start();
  struct OnLoop : Recorder {
    Loop* loop = nullptr;
    bool OnMessage(PeerId peer, std::string&& bytes) override {
      EXPECT_TRUE(loop->InLoop());
      return Recorder::OnMessage(peer, std::move(bytes));
    }
  } handler;
  handler.loop = &loop;
  auto options = this->Options(this->net_.AnyAddress());
  options.loop = &loop;
  auto server = this->net_.Make(options, &handler);
  auto client = this->net_.Make(this->Options(), &this->at_client_);
  const PeerId peer = client->Dial(this->net_.AddressOf(*server));
  this->at_client_.FirstPeer();
  EXPECT_TRUE(client->Send(peer, "x"));
  EXPECT_TRUE(handler.Wait([&] { return handler.count == 1; }));
  client->Shutdown();
  server->Shutdown();
}

// A child process that runs this binary as an echoing peer.
class ChildPeer {
 public:
  explicit ChildPeer(int port) {
    const std::string address = "127.0.0.1:" + std::to_string(port);
    pid_ = fork();
    if (pid_ == 0) {
      execl("/proc/self/exe", "channel_test", "--dial", address.c_str(), nullptr);
      _exit(1);
    }
  }
  ~ChildPeer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int number) { kill(pid_, number); }

 private:
  pid_t pid_;
};

TEST(GrpcChannel, NoticesAKilledPeerAtOnceAndAStoppedOneBySilence) {
  Recorder here;
  auto channel = CreateGrpcChannel({.listen_address = "127.0.0.1:0",
                                    .heartbeat = Millis(50),
                                    .dead_after = Millis(400)},
                                   &here);
  ASSERT_TRUE(channel.ok());
  {
    ChildPeer stopped((*channel)->listen_port());
    here.FirstPeer();
    stopped.Signal(SIGSTOP);
    ASSERT_TRUE(here.Wait([&] { return here.downs.size() == 1; }));
    EXPECT_NE(here.reasons[0].ToString().find("silent"), std::string::npos) << here.reasons[0];
    stopped.Signal(SIGCONT);
    // It notices in turn and dials again.
    ASSERT_TRUE(here.Wait([&] { return here.ups.size() == 2; }));
  }
  ASSERT_TRUE(here.Wait([&] { return here.downs.size() == 2; }));
  ChildPeer killed((*channel)->listen_port());
  ASSERT_TRUE(here.Wait([&] { return here.ups.size() == 3; }));
  const PeerId peer = here.ups[2];
  EXPECT_TRUE((*channel)->Send(peer, "ping"));
  ASSERT_TRUE(here.Wait([&] { return here.messages[peer].size() == 1; }));
  EXPECT_EQ(here.messages[peer][0], "ping");
  killed.Signal(SIGKILL);
  ASSERT_TRUE(here.Wait([&] { return here.downs.size() == 3; }));
  // By the broken stream.
  EXPECT_EQ(here.reasons[2].ToString().find("silent"), std::string::npos) << here.reasons[2];
}

TEST(GrpcChannel, ALinkThatNeverSaysHelloEndsWhateverItsHeartbeats) {
  Recorder here;
  auto channel = CreateGrpcChannel({.listen_address = "127.0.0.1:0",
                                    .heartbeat = Millis(20),
                                    .dead_after = Millis(150)},
                                   &here);
  ASSERT_TRUE(channel.ok());
  grpc::GenericStub stub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string((*channel)->listen_port()),
                          grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/weir.v1.Peer/Connect", &queue);
  void* tag = nullptr;
  bool going = false;
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &going) && going);
  std::string beat;
  AppendFrameHead(FrameKind::kHeartbeat, 0, &beat);
  const grpc::Slice slice(beat);
  const grpc::ByteBuffer buffer(&slice, 1);
  const Instant begun = Now();
  while (going && Now() - begun < kLimit) {
    call->Write(buffer, nullptr);
    ASSERT_TRUE(queue.Next(&tag, &going));
    std::this_thread::yield();
  }
  EXPECT_FALSE(going);
  EXPECT_GE(Now() - begun, Millis(100));
  context.TryCancel();  // or the end waits for what was not read
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(queue.Next(&tag, &going));
  EXPECT_TRUE(here.ups.empty());
}

TEST(ChannelFrame, ParsesAcrossPiecesAndRefusesWhatDoesNotAddUp) {
  std::string frame;
  AppendFrameHead(FrameKind::kHello, kFrameHello.size(), &frame);
  frame += kFrameHello;
  AppendFrameHead(FrameKind::kMessage, 3, &frame);
  frame += "abc";
  AppendFrameHead(static_cast<FrameKind>(9), 1, &frame);
  frame += "?";
  AppendFrameHead(FrameKind::kMessage, 0, &frame);
  for (size_t cut = 0; cut <= frame.size(); ++cut) {
    const std::string_view view(frame);
    const std::string_view pieces[] = {view.substr(0, cut), "", view.substr(cut)};
    std::vector<Frame> out;
    ASSERT_TRUE(ParseFrames(pieces, 100, &out)) << cut;
    ASSERT_EQ(out.size(), 3u);
    EXPECT_EQ(out[1].bytes, "abc");
    EXPECT_EQ(out[2].bytes, "");
  }
  const auto parses = [](std::string_view bytes, size_t limit) {
    std::vector<Frame> out;
    return ParseFrames(std::span(&bytes, 1), limit, &out);
  };
  EXPECT_TRUE(parses("", 10));
  EXPECT_FALSE(parses(frame, 2));
  EXPECT_FALSE(parses("\x02", 10));
  EXPECT_FALSE(parses(std::string_view("\x02\xff\xff\xff\xff", 5), ~size_t{0}));
  EXPECT_FALSE(parses(std::string_view("\x01\x01\x00\x00\x00x", 6), 10)) << "another version";
}

int RunPeer(const std::string& address) {
  struct Echo : Channel::Handler {
    Channel* channel = nullptr;
    void OnUp(PeerId, std::string_view) override {}
    void OnDown(PeerId, const absl::Status&) override {}
    bool OnMessage(PeerId peer, std::string&& bytes) override {
      return channel->Send(peer, bytes);
    }
  } echo;
  auto channel = CreateGrpcChannel({.heartbeat = Millis(50), .dead_after = Millis(400)}, &echo);
  if (!channel.ok()) return 1;
  echo.channel = channel->get();
  (*channel)->Dial(address);
  pause();
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--dial") return weir::RunPeer(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
