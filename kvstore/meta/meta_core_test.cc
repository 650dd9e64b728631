// SPDX-License-Identifier: Apache-2.0
//
// The run catalogue over its twin and over RocksDB: what it promises after every step of random
// histories.
#include "kvstore/meta/meta_core.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/stdx/random.h"
#include "kvstore/blob/test_record.h"
#include "kvstore/meta/rocks_store.h"

namespace weir::kv {
namespace {

class InMemory {
 public:
  static constexpr bool kSurvives = false;
  std::unique_ptr<OrderedStore> Open() { return std::make_unique<MemOrderedStore>(); }
};

class OnDisk {
 public:
  static constexpr bool kSurvives = true;
  ~OnDisk() { std::filesystem::remove_all(path_); }
  std::unique_ptr<OrderedStore> Open() {
    auto store = OpenRocksStore(path_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

 private:
  std::string path_ = testing::TempDir() + "/weir-meta-" + std::to_string(getpid());
};

DomainId DomainOf(uint8_t number) {
  DomainId domain{};
  domain[0] = number;
  return domain;
}

IndexKey RootOf(uint8_t number) { return TestKey(900 + number).index(); }

// Blocks of a chain that forks: block i of branch b shares its first i - i % 4 blocks with other
// branches.
std::vector<BlockKey> Prompt(uint8_t domain, uint64_t branch, uint32_t blocks) {
  std::vector<BlockKey> keys;
  for (uint32_t i = 0; i < blocks; ++i) {
    const uint32_t shared = 2 - i / 4;  // low bits of the branch that do not tell yet
    keys.push_back(TestKey(1'000'000ull * domain + 1000 * (branch >> shared << shared) + i));
  }
  return keys;
}

CatalogRun RunOf(uint8_t domain, std::span<const BlockKey> prompt, uint32_t first, uint32_t count,
                 NodeId node, uint32_t epoch) {
  CatalogRun run{.domain = DomainOf(domain), .node = node, .epoch = epoch, .tier = 2, .bytes = 100};
  run.parent = first == 0 ? RootOf(domain) : prompt[first - 1].index();
  for (uint32_t i = first; i < first + count; ++i) {
    run.keys.push_back(prompt[i].index());
    run.fingerprints.push_back(prompt[i].fingerprint());
  }
  return run;
}

template <class T>
class MetaSuite : public testing::Test {
 public:
  MetaSuite() { Open(); }
  void Open() {
    core_.reset();
    auto core = MetaCore::Open(maker_.Open());
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
  }
  uint32_t Match(uint8_t domain, std::span<const BlockKey> keys) {
    const auto covered = core_->Match(DomainOf(domain), RootOf(domain), keys, false, &hits_);
    EXPECT_TRUE(covered.ok());
    uint32_t at = 0;
    for (const MetaCore::Hit& hit : hits_) {
      EXPECT_EQ(hit.at, at);
      at += hit.count;
    }
    EXPECT_EQ(at, *covered);
    return *covered;
  }

 protected:
  T maker_;
  std::unique_ptr<MetaCore> core_;
  std::vector<MetaCore::Hit> hits_;
};

using Makers = testing::Types<InMemory, OnDisk>;
TYPED_TEST_SUITE(MetaSuite, Makers);

TYPED_TEST(MetaSuite, FindsChainsAndForks) {
  const uint32_t epoch = *this->core_->Register(1);
  const std::vector<BlockKey> trunk = Prompt(1, 0, 12);
  ASSERT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, trunk, 0, 8, 1, epoch)).ok());
  ASSERT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, trunk, 8, 4, 1, epoch)).ok());
  std::vector<BlockKey> fork(trunk.begin(), trunk.begin() + 5);
  for (uint32_t i = 0; i < 3; ++i) fork.push_back(TestKey(77 + i));
  EXPECT_EQ(this->Match(1, fork), 5u);
  ASSERT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, fork, 5, 3, 1, epoch)).ok());
  EXPECT_EQ(this->Match(1, fork), 8u);
  EXPECT_EQ(this->Match(1, trunk), 12u);
  EXPECT_EQ(this->Match(2, trunk), 0u);  // foreign is as absent
  EXPECT_EQ(ReasonOf(this->core_->Publish(RootOf(1), RunOf(1, Prompt(1, 64, 12), 8, 4, 1, epoch))),
            Reason::kUnknownModel);
}

TYPED_TEST(MetaSuite, AnEarlierLifeIsRefusedAndForgotten) {
  const uint32_t first = *this->core_->Register(1);
  const std::vector<BlockKey> keys = Prompt(1, 0, 8);
  ASSERT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, keys, 0, 4, 1, first)).ok());
  const uint32_t second = *this->core_->Register(1);
  EXPECT_EQ(this->Match(1, keys), 0u);
  EXPECT_EQ(ReasonOf(this->core_->Publish(RootOf(1), RunOf(1, keys, 4, 4, 1, first))),
            Reason::kStaleEpoch);
  EXPECT_EQ(ReasonOf(this->core_->Evict(RunOf(1, keys, 0, 4, 1, first))), Reason::kStaleEpoch);
  ASSERT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, keys, 0, 4, 1, second)).ok());
  EXPECT_EQ(this->Match(1, keys), 4u);
  EXPECT_EQ(this->core_->BytesOf(DomainOf(1)), 100u);  // not counted twice
}

TYPED_TEST(MetaSuite, QuotasAreExactAndLeaveOthersAlone) {
  const uint32_t epoch = *this->core_->Register(1);
  this->core_->SetQuota(DomainOf(1), 250);
  const std::vector<BlockKey> keys = Prompt(1, 0, 12);
  ASSERT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, keys, 0, 4, 1, epoch)).ok());
  ASSERT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, keys, 4, 4, 1, epoch)).ok());
  EXPECT_EQ(ReasonOf(this->core_->Publish(RootOf(1), RunOf(1, keys, 8, 4, 1, epoch))),
            Reason::kTenantRate);
  EXPECT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, keys, 4, 4, 1, epoch)).ok());  // is there
  EXPECT_TRUE(this->core_->Publish(RootOf(2), RunOf(2, Prompt(2, 0, 4), 0, 4, 1, epoch)).ok());
  ASSERT_TRUE(this->core_->Evict(RunOf(1, keys, 4, 4, 1, epoch)).ok());
  EXPECT_EQ(this->core_->BytesOf(DomainOf(1)), 100u);
}

// KVS D84: ten thousand objects, and a restart finds all of them.
TYPED_TEST(MetaSuite, D84_ARestartFindsEverything) {
  if (!TypeParam::kSurvives) return;
  const uint32_t epoch = *this->core_->Register(1);
  for (uint64_t i = 0; i < 10'000; ++i) {
    const BlockKey key = TestKey(i);
    ASSERT_TRUE(this->core_->Publish(RootOf(1), RunOf(1, {&key, 1}, 0, 1, 1, epoch)).ok());
  }
  this->Open();
  EXPECT_EQ(this->core_->BytesOf(DomainOf(1)), 1'000'000u);
  for (uint64_t i = 0; i < 10'000; i += 500) {
    const BlockKey key = TestKey(i);
    ASSERT_EQ(this->Match(1, {&key, 1}), 1u);
  }
  EXPECT_EQ(*this->core_->Register(1), epoch + 1);
  ASSERT_TRUE(this->core_->EraseDomain(DomainOf(1)).ok());
  this->Open();
  EXPECT_EQ(this->core_->BytesOf(DomainOf(1)), 0u);
}

// Random publishes and evictions of two nodes and three domains beside a plain model: whatever is
// published and not evicted is found, and nothing that others hang on goes.
TYPED_TEST(MetaSuite, HistoriesKeepChainsClosed) {
  Random random(5);
  const uint32_t epochs[] = {*this->core_->Register(0), *this->core_->Register(1)};
  std::set<BlockKey> blocks[3];  // that some node has
  uint64_t refused = 0;
  for (int step = 0; step < 1500; ++step) {
    const auto domain = static_cast<uint8_t>(random.Below(3));
    const std::vector<BlockKey> prompt = Prompt(domain, random.Below(8), 12);
    const NodeId node = random.Below(2);
    const auto first = static_cast<uint32_t>(random.Below(6) * 2);
    const CatalogRun run = RunOf(domain, prompt, first, 2, node, epochs[node]);
    const bool parent = first == 0 || blocks[domain].contains(prompt[first - 1]);
    const uint64_t what = random.Below(100);
    if (what < 60) {
      ASSERT_EQ(this->core_->Publish(RootOf(domain), run).ok(), parent);
      if (parent) blocks[domain].insert(prompt.begin() + first, prompt.begin() + first + 2);
    } else if (what < 97) {
      if (!this->core_->Evict(run).ok()) ++refused;
    } else if (what < 98) {
      ASSERT_TRUE(this->core_->EraseDomain(DomainOf(domain)).ok());
      blocks[domain].clear();
      ASSERT_EQ(this->Match(domain, prompt), 0u);
    }
    // Which of the model's blocks are still there can be asked; what must hold is that they are a
    // prefix.
    for (uint64_t branch = 0; branch < 8; ++branch) {
      const std::vector<BlockKey> other = Prompt(domain, branch, 12);
      const uint32_t covered = this->Match(domain, other);
      for (uint32_t i = 0; i < covered; ++i) ASSERT_TRUE(blocks[domain].contains(other[i]));
      for (uint32_t i = covered; i < 12; ++i) {
        if (what >= 60 && blocks[domain].contains(other[i])) {
          ASSERT_EQ(what < 97, true);
          blocks[domain].erase(other[i]);
        }
        ASSERT_FALSE(blocks[domain].contains(other[i]))
            << "block " << i << " behind a gap, step " << step;
      }
    }
  }
  EXPECT_GT(refused, 20u);
}

TEST(RocksStore, OneProcessHasTheFolderAndADamagedOneSaysSo) {
  const std::string path = testing::TempDir() + "/weir-rocks-" + std::to_string(getpid());
  auto first = OpenRocksStore(path);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(OpenRocksStore(path).ok());
  first->reset();
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().filename().string().rfind("MANIFEST", 0) == 0)
      std::filesystem::resize_file(entry.path(), 10);
  }
  EXPECT_FALSE(OpenRocksStore(path).ok());
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace weir::kv
