// SPDX-License-Identifier: Apache-2.0
//
// Stories of a store and its engines on a fake clock, with copies that end when the story says so.
#include "kvstore/node/node_core.h"

#include <gtest/gtest.h>

#include <set>

#include "base/stdx/status.h"
#include "kvstore/blob/mem_blob.h"
#include "kvstore/blob/test_record.h"
#include "kvstore/client/kv_wire.h"

namespace weir::kv {
namespace {

// Copies nothing: who ends a copy has filled the destination.
class FakeTransfer final : public Transfer {
 public:
  absl::Status AddRegion(uint32_t, Arena*) override { return absl::OkStatus(); }
  std::vector<std::string> Descriptors() const override { return {}; }
  absl::Status AddRemote(InstanceId peer, std::span<const std::string>) override {
    remotes.insert(peer);
    return absl::OkStatus();
  }
  void RemoveRemote(InstanceId peer) override {
    remotes.erase(peer);
    EndAll(peer, Error(Reason::kPeerLost, "gone"));
  }
  absl::StatusOr<TransferId> Post(std::span<const CopyOp> ops, Traffic) override {
    const TransferId id(++last_);
    under_way[id].assign(ops.begin(), ops.end());
    return id;
  }
  void Poll(std::vector<Completion>* out) override {
    for (Completion& one : done) out->push_back(std::move(one));
    done.clear();
  }
  void Cancel(TransferId id) override {
    if (under_way.erase(id) > 0) done.push_back({id, Error(Reason::kCancelled, "cancelled")});
  }
  TransferStats Stats() const override { return {}; }

  void EndAll(InstanceId peer, const absl::Status& status) {
    for (auto copy = under_way.begin(); copy != under_way.end();) {
      if (copy->second[0].from != peer) {
        ++copy;
        continue;
      }
      done.push_back({copy->first, status});
      copy = under_way.erase(copy);
    }
  }

  std::set<InstanceId> remotes;
  std::map<TransferId, std::vector<CopyOp>> under_way;
  std::vector<Completion> done;

 private:
  uint64_t last_ = 0;
};

class NodeCoreTest : public testing::Test {
 protected:
  NodeCoreTest() {
    for (const uint64_t peer : {1, 2}) {
      v1::KvMessage hello;
      hello.mutable_hello()->set_protocol(kKvProtocol);
      hello.mutable_hello()->set_instance(100 + peer);
      EXPECT_TRUE(Say(peer, hello).has_hello());
    }
  }

  // The last answer, if there was one.
  v1::KvMessage Say(uint64_t peer, const v1::KvMessage& message) {
    return On({NodeEvent::Kind::kMessage, PeerId(peer),
               std::make_shared<const v1::KvMessage>(message)});
  }
  v1::KvMessage On(const NodeEvent& event) {
    NodeActions actions;
    core_.On(now_, event, &actions);
    return actions.sends.empty() ? v1::KvMessage() : actions.sends.back().message;
  }

  v1::KvMessage Put(uint64_t peer, uint64_t prompt, uint32_t blocks = 4) {
    v1::KvMessage message;
    v1::KvPut* put = message.mutable_put();
    put->set_id(++last_id_);
    put->set_root(BytesOfKeys({&root_, 1}));
    put->set_keys(BytesOfKeys(Keys(prompt, blocks)));
    put->set_domain(std::string(16, 'd'));
    put->set_schema(std::string(32, 's'));
    put->set_deadline_ms(500);
    ShapeTo(TestShape(blocks), put->mutable_shape());
    for (uint32_t i = 0; i < 2 * blocks; ++i) {
      put->add_regions(1);
      put->add_offsets(0);
      put->add_crcs(7);
    }
    return Say(peer, message);
  }

  v1::KvMessage Lookup(uint64_t peer, uint64_t prompt, uint32_t blocks = 4) {
    v1::KvMessage message;
    v1::KvLookup* lookup = message.mutable_lookup();
    lookup->set_id(++last_id_);
    lookup->set_root(BytesOfKeys({&root_, 1}));
    lookup->set_keys(BytesOfKeys(Keys(prompt, blocks)));
    ShapeTo(TestShape(1), lookup->mutable_shape());
    return Say(peer, message);
  }

  static std::vector<BlockKey> Keys(uint64_t prompt, uint32_t blocks) {
    std::vector<BlockKey> keys;
    for (uint32_t i = 0; i < blocks; ++i) keys.push_back(TestKey(prompt * 1000 + i));
    return keys;
  }

  static Reason ReasonIn(const v1::KvMessage& answer) {
    return answer.done().has_failure() ? ReasonFromNumber(answer.done().failure().reason())
                                       : Reason::kOk;
  }

  Instant now_{Millis(1000)};
  AlignedBuffer memory_{8 * TestShape(4).PayloadBytes()};
  TieredOptions options_{
      .arena = memory_.span(), .host_bytes = memory_.bytes(), .runs_max = 100};
  std::unique_ptr<TieredStore> store_ = TieredStore::Create(options_, nullptr);
  FakeTransfer transfer_;
  NodeCore core_{{.instance = InstanceId(9)}, memory_.span(), store_.get(), &transfer_, {}};
  BlockKey root_ = TestKey(42);
  uint64_t last_id_ = 0;
};

TEST_F(NodeCoreTest, D83_AnEngineThatDiesInAPutBlocksNobody) {
  EXPECT_EQ(Put(1, 5).body_case(), v1::KvMessage::BODY_NOT_SET);  // is being copied
  EXPECT_EQ(Lookup(2, 5).found().blocks(), 0u);                   // not readable before it is whole
  EXPECT_GT(store_->stats().host.held_bytes, 0u);
  On({NodeEvent::Kind::kDown, PeerId(1), nullptr});
  EXPECT_EQ(store_->stats().host.held_bytes, 0u);
  Put(2, 5);
  transfer_.EndAll(InstanceId(102), absl::OkStatus());
  EXPECT_TRUE(On({}).has_done());
  const v1::KvMessage found = Lookup(2, 5);
  EXPECT_EQ(found.found().blocks(), 4u);
  EXPECT_EQ(found.found().stretches(0).crcs(0), 7u);  // the engine's, for the next to compare
}

TEST_F(NodeCoreTest, APutThatDoesNotLandEndsByItsDeadline) {
  Put(1, 5);
  EXPECT_EQ(core_.NextDeadline(), now_ + Millis(500));
  now_ += Millis(500);
  On({});
  EXPECT_EQ(ReasonIn(On({})), Reason::kDeadline);
  EXPECT_EQ(store_->stats().host.held_bytes, 0u);
  EXPECT_TRUE(transfer_.under_way.empty());
}

TEST_F(NodeCoreTest, MemoryUnderALeaseIsNotUsedAgainBeforeItIsOver) {
  for (uint64_t prompt = 0; prompt < 8; ++prompt) Put(1, prompt);
  transfer_.EndAll(InstanceId(101), absl::OkStatus());
  On({});
  for (uint64_t prompt = 0; prompt < 8; ++prompt) EXPECT_EQ(Lookup(2, prompt).found().blocks(), 4u);
  On({NodeEvent::Kind::kDown, PeerId(2), nullptr});  // it may live and be reading
  EXPECT_EQ(ReasonIn(Put(1, 20)), Reason::kNoCapacity);
  now_ += Millis(9'999);
  EXPECT_EQ(ReasonIn(Put(1, 20)), Reason::kNoCapacity);
  now_ += Millis(1);
  On({});
  EXPECT_EQ(core_.stats().leases_expired, 8u);
  EXPECT_EQ(ReasonIn(Put(1, 20)), Reason::kOk);
}

TEST_F(NodeCoreTest, WhatIsPutWhileItsDomainIsErasedIsGone) {
  Put(1, 5);
  v1::KvMessage erase;
  erase.mutable_erase()->set_domain(std::string(16, 'd'));
  // The last answer is the put's.
  EXPECT_EQ(ReasonIn(Say(2, erase)), Reason::kCancelled);
  EXPECT_EQ(Lookup(2, 5).found().blocks(), 0u);
  EXPECT_EQ(store_->stats().host.held_bytes, 0u);
}

TEST_F(NodeCoreTest, AnEngineThatComesBackReplacesItsOldLink) {
  Put(1, 5);
  v1::KvMessage hello;
  hello.mutable_hello()->set_protocol(kKvProtocol);
  hello.mutable_hello()->set_instance(101);
  EXPECT_TRUE(Say(3, hello).has_hello());
  EXPECT_EQ(core_.stats().clients, 2u);
  EXPECT_TRUE(transfer_.remotes.contains(InstanceId(101)));
  EXPECT_EQ(store_->stats().host.held_bytes, 0u);
}

// Whatever a broken or hostile engine says, the store answers and forgets it.
TEST_F(NodeCoreTest, MessagesOfNoiseDoNoHarm) {
  Random random(11);
  for (int i = 0; i < 20000; ++i) {
    if (random.Chance(0.2)) Lookup(1 + random.Below(2), random.Below(20), 3);
    v1::KvMessage message;
    switch (random.Below(4)) {
      case 0:
        message.mutable_fetch()->set_lookup(random.Below(last_id_ + 2));
        message.mutable_fetch()->set_stretch(static_cast<uint32_t>(random.Below(3)));
        break;
      case 1:
        message.mutable_release()->set_lookup(random.Below(last_id_ + 2));
        if (random.Chance(0.5))
          message.mutable_release()->set_stretch(static_cast<uint32_t>(random.Below(4)));
        break;
      case 2:
        message.mutable_erase()->set_domain(std::string(random.Below(18), 'd'));
        break;
      default: {
        v1::KvPut* put = message.mutable_put();
        put->set_root(BytesOfKeys({&root_, 1}));
        put->set_keys(BytesOfKeys(Keys(random.Below(20), 3)));
        put->set_domain(std::string(16, 'd'));
        put->set_schema(std::string(32, 's'));
        ShapeTo(TestShape(3), put->mutable_shape());
        for (uint32_t j = 0; j < 6; ++j) {
          put->add_regions(static_cast<uint32_t>(random.Next()));
          put->add_offsets(random.Next());
          put->add_crcs(0);
        }
      }
    }
    std::string bytes = message.SerializeAsString();
    for (uint64_t flips = random.Below(4); flips > 0 && !bytes.empty(); --flips)
      bytes[random.Below(bytes.size())] ^= static_cast<char>(1 << random.Below(8));
    if (!message.ParseFromString(bytes)) message.Clear();
    Say(1 + random.Below(2), message);
    if (random.Chance(0.3)) transfer_.EndAll(InstanceId(101), absl::OkStatus());
    now_ += Millis(static_cast<int64_t>(random.Below(20)));
  }
  now_ += Millis(60'000);
  On({});
  On({});
  EXPECT_EQ(core_.stats().puts, 0u);
  EXPECT_EQ(core_.stats().lookups, 0u);
  Put(2, 77);
  transfer_.EndAll(InstanceId(102), absl::OkStatus());
  On({});
  EXPECT_EQ(Lookup(1, 77).found().blocks(), 4u);
}

}  // namespace
}  // namespace weir::kv
