// SPDX-License-Identifier: Apache-2.0
//
// One suite over both clients: the store in this process, and one behind a channel and an arena.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/net/mem_channel.h"
#include "base/stdx/status.h"
#include "kvstore/client/kv_wire.h"
#include "kvstore/client/remote_client.h"
#include "kvstore/node/embedded_client.h"
#include "kvstore/node/node_service.h"
#include "kvstore/node/test_history.h"

namespace weir::kv {
namespace {

constexpr uint64_t kHostBytes = 160 * kKiB;
constexpr uint32_t kStateBytes = 9000;
constexpr uint64_t kWindowBytes = 40 * kKiB;  // three slots

std::string TemporaryFolder() {
  std::string path = testing::TempDir() + "/kv-client-XXXXXX";
  return mkdtemp(path.data());
}

TieredOptions Tiers(const std::string& dir) {
  TieredOptions options{.host_bytes = kHostBytes,
                        .runs_max = 5000,
                        .host_free_share = 0.4,
                        .disk_path = dir};
  options.disk = {.capacity_bytes = 2 * kMiB, .segment_bytes = 256 * kKiB};
  return options;
}

class EmbeddedRig {
 public:
  EmbeddedRig() {
    TieredOptions options = Tiers(dir_);
    options.arena = memory_.span();
    store_ = *TieredStore::Open(options);
    client_ = std::make_unique<EmbeddedClient>(store_.get(), &windows_);
  }
  ~EmbeddedRig() {
    client_.reset();
    store_.reset();
    std::filesystem::remove_all(dir_);
  }
  KvClient* client() { return client_.get(); }
  WakeFlag wake;

 private:
  const std::string dir_ = TemporaryFolder();
  AlignedBuffer memory_{kHostBytes};
  AlignedBuffer window_memory_{kWindowBytes};
  WindowRing windows_{window_memory_.span(), {.state_bytes_max = kStateBytes}};
  std::unique_ptr<TieredStore> store_;
  std::unique_ptr<EmbeddedClient> client_;
};

class RemoteRig {
 public:
  RemoteRig() {
    NodeServiceOptions options{.name = "node", .listen_address = "mem:node", .store = Tiers(dir_)};
    options.make_channel = factory_;
    options.window_bytes = kWindowBytes;
    options.windows.state_bytes_max = kStateBytes;
    node_ = *NodeService::Create(std::move(options));
    node_->Start();
    client_ = *RemoteClient::Create(
        {.address = "mem:node", .make_channel = factory_, .wake = wake.Hook()});
  }
  ~RemoteRig() {
    client_.reset();
    node_.reset();
    std::filesystem::remove_all(dir_);
  }
  KvClient* client() { return client_.get(); }
  WakeFlag wake;

 private:
  const std::string dir_ = TemporaryFolder();
  MemHub hub_;
  ChannelFactory factory_ = [this](Channel::Options options, Channel::Handler* handler) {
    return hub_.Create(std::move(options), handler);
  };
  std::unique_ptr<NodeService> node_;
  std::unique_ptr<RemoteClient> client_;
};

template <class Rig>
class KvClientTest : public testing::Test {
 protected:
  KvClientTest() {
    EXPECT_TRUE(rig_.client()->AddRegion(1, arena_.get()).ok());
    EXPECT_TRUE(history_.AwaitUp());
  }

  KvPut PutOf(std::span<const BlockKey> keys, uint32_t first, uint32_t blocks) {
    KvPut put{.root = TestKey(42), .keys = keys, .first = first};
    put.shape = ClientHistory::Shape(blocks);
    for (uint32_t j = 0; j < blocks; ++j) {
      for (uint32_t i = 0; i < 2; ++i)
        put.parts.push_back({first + j, i, 1, uint64_t{j} * 1000 + i * 300});
    }
    return put;
  }

  std::unique_ptr<Arena> arena_ = *Arena::CreateShared(ClientHistory::kArenaBytes);
  Rig rig_;
  ClientHistory history_{rig_.client(), &rig_.wake, arena_.get(), 1};
};

using Rigs = testing::Types<EmbeddedRig, RemoteRig>;
TYPED_TEST_SUITE(KvClientTest, Rigs);

TYPED_TEST(KvClientTest, HistoriesNeverGiveWrongBytes) {
  this->history_.Run(250);
  EXPECT_EQ(this->history_.wrong, 0u);
  EXPECT_GT(this->history_.puts, 20u);
  EXPECT_GT(this->history_.loaded_blocks, 40u);
}

TYPED_TEST(KvClientTest, WhatIsPutIsFoundAndWhatIsErasedIsNot) {
  std::vector<BlockKey> keys;
  for (uint64_t i = 0; i < 6; ++i) keys.push_back(TestKey(i));
  KvClient& client = *this->rig_.client();
  const Instant later = Now() + Millis(10'000);
  for (const uint32_t first : {0u, 4u}) {
    const auto put = client.Put(Now(), this->PutOf(keys, first, first == 0 ? 4 : 2), later);
    ASSERT_TRUE(put.ok()) << put.status();
    const KvOutcome done = this->history_.Await(*put);
    ASSERT_TRUE(done.status.ok()) << done.status;
  }
  const auto find = [&] {
    const auto lookup = client.Lookup(Now(), TestKey(42), keys, true, ClientHistory::Shape(1));
    EXPECT_TRUE(lookup.ok());
    const uint32_t blocks = this->history_.Await(*lookup).blocks;
    client.Release(*lookup);
    return blocks;
  };
  EXPECT_EQ(find(), 6u);
  const auto erase = client.EraseDomain(Now(), DomainId{}, later);
  ASSERT_TRUE(erase.ok());
  EXPECT_TRUE(this->history_.Await(*erase).status.ok());
  EXPECT_EQ(find(), 0u);
}

TYPED_TEST(KvClientTest, AStateComesBackUntilItIsOverwrittenOrErased) {
  KvClient& client = *this->rig_.client();
  const Instant later = Now() + Millis(10'000);
  const auto state = [](uint64_t seed) {
    return KvState{.key = TestKey(seed),
                   .position = static_cast<Position>(7 * seed),
                   .region = 1,
                   .offset = 100,
                   .bytes = static_cast<uint32_t>(kStateBytes - seed)};
  };
  std::span<std::byte> memory(this->arena_->data() + 100, kStateBytes);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    FillBlock(seed, 0, 0, memory);
    const auto put = client.PutState(Now(), state(seed), later);
    ASSERT_TRUE(put.ok()) << put.status();
    const KvOutcome done = this->history_.Await(*put);
    ASSERT_TRUE(done.status.ok()) << done.status;
  }
  const auto load = [&](uint64_t seed, uint32_t room) {
    std::memset(memory.data(), 0, memory.size());
    KvState into = state(seed);
    into.bytes = room;
    const auto id = client.LoadState(Now(), into, later);
    EXPECT_TRUE(id.ok());
    return this->history_.Await(*id);
  };
  const KvOutcome third = load(3, kStateBytes);
  ASSERT_TRUE(third.status.ok()) << third.status;
  EXPECT_EQ(third.position, 21u);
  EXPECT_EQ(third.bytes, kStateBytes - 3);
  std::vector<std::byte> expected(kStateBytes);
  FillBlock(3, 0, 0, expected);
  EXPECT_EQ(std::memcmp(expected.data(), memory.data(), third.bytes), 0);
  EXPECT_EQ(ReasonOf(load(0, kStateBytes).status), Reason::kUnknownModel);  // overwritten
  EXPECT_EQ(ReasonOf(load(3, 50).status), Reason::kTooLong);
  const auto erase = client.EraseDomain(Now(), DomainId{}, later);
  ASSERT_TRUE(erase.ok());
  EXPECT_TRUE(this->history_.Await(*erase).status.ok());
  EXPECT_EQ(ReasonOf(load(3, kStateBytes).status), Reason::kUnknownModel);
}

TYPED_TEST(KvClientTest, WhatDoesNotFitIsRefused) {
  std::vector<BlockKey> keys;
  for (uint64_t i = 0; i < 6; ++i) keys.push_back(TestKey(i));
  KvClient& client = *this->rig_.client();
  const Instant later = Now() + Millis(10'000);
  KvPut lacks = this->PutOf(keys, 0, 4);
  lacks.parts.pop_back();
  EXPECT_EQ(ReasonOf(client.Put(Now(), lacks, later).status()), Reason::kBadField);
  KvPut twice = this->PutOf(keys, 0, 4);
  twice.parts[1] = twice.parts[0];
  EXPECT_EQ(ReasonOf(client.Put(Now(), twice, later).status()), Reason::kBadField);
  KvPut outside = this->PutOf(keys, 0, 4);
  outside.parts[3].offset = this->arena_->bytes() - 10;
  EXPECT_EQ(ReasonOf(client.Put(Now(), outside, later).status()), Reason::kBadField);
  EXPECT_EQ(ReasonOf(client.Put(Now(), this->PutOf(keys, 5, 4), later).status()),
            Reason::kBadField);
  const auto orphan = client.Put(Now(), this->PutOf(keys, 2, 4), later);
  ASSERT_TRUE(orphan.ok());
  EXPECT_EQ(ReasonOf(this->history_.Await(*orphan).status), Reason::kUnknownModel);
  const BlockPart part{.block = 0, .region = 1};
  EXPECT_EQ(ReasonOf(client.Load(Now(), KvOpId(99999), {&part, 1}, later).status()),
            Reason::kBadField);
}

// A client that says whatever it is told to.
class RawClient final : private Channel::Handler {
 public:
  explicit RawClient(MemHub* hub) : channel_(*hub->Create({}, this)), peer_(channel_->Dial("mem:x")) {}
  ~RawClient() override { channel_->Shutdown(); }

  v1::KvMessage Ask(const v1::KvMessage& message) {
    while (!channel_->Send(peer_, message.SerializeAsString())) wake_.Wait(Millis(100));
    std::vector<std::string> answers;
    for (int i = 0; i < 300 && answers.empty(); ++i) {
      inbox_.PopSome(1, &answers);
      if (answers.empty()) wake_.Wait(Millis(100));
    }
    v1::KvMessage answer;
    EXPECT_TRUE(!answers.empty() && answer.ParseFromString(answers[0]));
    return answer;
  }
  bool AwaitDown() {
    for (int i = 0; i < 100 && !down_; ++i) wake_.Wait(Millis(100));
    return down_;
  }

 private:
  void OnUp(PeerId, std::string_view) override { wake_.Hook()(); }
  void OnDown(PeerId, const absl::Status&) override {
    down_ = true;
    wake_.Hook()();
  }
  bool OnMessage(PeerId, std::string&& bytes) override {
    EXPECT_TRUE(inbox_.TryPush(std::move(bytes)));
    wake_.Hook()();
    return true;
  }

  WakeFlag wake_;
  std::atomic<bool> down_{false};
  BoundedQueue<std::string> inbox_{100};
  std::unique_ptr<Channel> channel_;
  PeerId peer_;
};

std::vector<v1::KvMessage> BadMessages() {
  std::vector<v1::KvMessage> bad(8);
  bad[0].mutable_lookup()->set_id(1);
  bad[0].mutable_lookup()->set_root("short");
  bad[1].mutable_lookup()->set_root(std::string(32, 'r'));
  bad[1].mutable_lookup()->set_keys(std::string(33, 'k'));
  bad[2].mutable_lookup()->set_root(std::string(32, 'r'));
  bad[3].mutable_fetch()->set_lookup(5);
  bad[4].mutable_put()->set_root(std::string(32, 'r'));
  bad[5].mutable_erase()->set_domain("x");
  bad[6].mutable_found()->set_blocks(3);
  v1::KvPut* put = bad[7].mutable_put();
  put->set_root(std::string(32, 'r'));
  put->set_keys(std::string(32, 'k'));
  put->set_domain(std::string(16, 'd'));
  put->set_schema(std::string(32, 's'));
  ShapeTo(ClientHistory::Shape(1), put->mutable_shape());
  for (uint32_t i = 0; i < 2; ++i) {
    put->add_regions(9);  // which this client has not
    put->add_offsets(0);
    put->add_crcs(1);
  }
  return bad;
}

TEST(NodeService, NonsenseIsRefusedWithAReason) {
  MemHub hub;
  NodeServiceOptions options{.name = "node", .listen_address = "mem:x", .store = Tiers("")};
  options.make_channel = [&](Channel::Options channel, Channel::Handler* handler) {
    return hub.Create(std::move(channel), handler);
  };
  const auto node = *NodeService::Create(std::move(options));
  node->Start();
  RawClient client(&hub);
  v1::KvMessage hello;
  hello.mutable_hello()->set_protocol(kKvProtocol);
  hello.mutable_hello()->set_instance(7);
  ASSERT_TRUE(client.Ask(hello).has_hello());
  for (const v1::KvMessage& message : BadMessages()) {
    const v1::KvMessage answer = client.Ask(message);
    ASSERT_TRUE(answer.has_done() && answer.done().has_failure()) << message.ShortDebugString();
    EXPECT_FALSE(answer.done().failure().message().empty());
  }
  EXPECT_EQ(node->GetStats().node.refused, BadMessages().size());
  EXPECT_EQ(node->GetStats().store.host.held_bytes, 0u);
  EXPECT_TRUE(client.Ask(hello).done().has_failure());  // hello comes once
  EXPECT_TRUE(client.AwaitDown());
}

}  // namespace
}  // namespace weir::kv
