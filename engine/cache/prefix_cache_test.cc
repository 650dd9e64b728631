// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/prefix_cache.h"

#include <deque>

#include "base/stdx/random.h"
#include "gtest/gtest.h"

namespace weir::engine {
namespace {

constexpr uint32_t kBlock = 4;

class PrefixCacheTest : public testing::Test {
 protected:
  void Start(PageId pages, PageId states = 4, uint32_t states_max = 2) {
    KvMemory memory;
    memory.page_count[0] = memory.page_count[1] = pages;
    memory.state_count = states;
    const CacheLayout layout(
        kBlock, {{.name = "enc", .part = Part::kEncoder, .row_bytes = 4},
                 {.name = "dec", .part = Part::kDecoder, .row_bytes = 4},
                 {.name = "ring", .kind = StoreKind::kWindow, .row_bytes = 4, .rows = 8}});
    pool_ = std::make_unique<KvPool>(layout, ShareOf(memory));
    cache_ = std::make_unique<PrefixCache>(pool_.get(), states_max);
  }

  static std::vector<TokenId> Ids(uint32_t count, TokenId word = 7, uint32_t same = 0) {
    std::vector<TokenId> ids(count, word);
    std::fill(ids.begin(), ids.begin() + same, 1);
    return ids;
  }
  static std::vector<kv::BlockKey> Keys(const std::vector<TokenId>& ids) {
    kv::KeyChain chain(kv::BlockKey(), kBlock);
    chain.Append(ids);
    return {chain.keys().begin(), chain.keys().end()};
  }
  // What a request does: share what is here, compute and seal the rest. False without room.
  bool Compute(const std::vector<TokenId>& ids, BlockTable* table, Grade grade = Grade::kExact) {
    const auto keys = Keys(ids);
    cache_->Attach(keys, grade, table);
    attached_ = static_cast<uint32_t>(table->shared.size());
    const auto blocks = static_cast<uint32_t>((ids.size() + kBlock - 1) / kBlock);
    while (!pool_->Grow(blocks, table)) {
      if (!cache_->EvictBlock() && !cache_->EvictState()) {
        cache_->Release(table);
        return false;
      }
    }
    while (table->shared.size() < keys.size() &&
           cache_->Seal(keys[table->shared.size()], grade, table)) {
    }
    return true;
  }
  void Check(std::vector<const BlockTable*> tables) {
    PageAudit audit(*pool_);
    for (const BlockTable* table : tables) audit.Add(*table);
    ASSERT_EQ(cache_->Audit(tables, &audit), "");
    ASSERT_EQ(audit.Verdict(), "");
  }

  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<PrefixCache> cache_;
  uint32_t attached_ = 0;
};

TEST_F(PrefixCacheTest, SharesTheSamePagesWithWhoBeginsAlike) {
  Start(16);
  BlockTable first, second;
  ASSERT_TRUE(Compute(Ids(14, 7, 8), &first));
  ASSERT_TRUE(Compute(Ids(14, 9, 8), &second));
  EXPECT_EQ(attached_, 2u);
  for (int part = 0; part < kPartCount; ++part) {
    EXPECT_EQ(first.pages[part][1], second.pages[part][1]);
    EXPECT_NE(first.pages[part][2], second.pages[part][2]);
  }
  EXPECT_EQ(pool_->pages(0).used(), 6u);  // two shared, one sealed and one incomplete each
  Check({&first, &second});
  cache_->Release(&first);
  Check({&second});
  EXPECT_EQ(cache_->idle_blocks(), 1u);
  cache_->Release(&second);
  Check({});
  EXPECT_EQ(pool_->pages(0).used(), 4u);
  EXPECT_EQ(cache_->idle_blocks(), 4u);
}

TEST_F(PrefixCacheTest, EvictsLeavesBeforeParentsAndTheOldestFirst) {
  Start(16);
  BlockTable table;
  ASSERT_TRUE(Compute(Ids(12, 7, 4), &table));
  cache_->Release(&table);
  ASSERT_TRUE(Compute(Ids(12, 9, 4), &table));
  cache_->Release(&table);
  ASSERT_EQ(cache_->blocks(), 5u);
  EXPECT_TRUE(cache_->EvictBlock());
  EXPECT_TRUE(cache_->EvictBlock());
  Check({});
  // Of the older branch only what both begin with is left; the younger one is whole.
  cache_->Attach(Keys(Ids(12, 7, 4)), Grade::kExact, &table);
  EXPECT_EQ(table.shared.size(), 1u);
  cache_->Release(&table);
  cache_->Attach(Keys(Ids(12, 9, 4)), Grade::kExact, &table);
  EXPECT_EQ(table.shared.size(), 3u);
  EXPECT_FALSE(cache_->EvictBlock()) << "all of it is in use";
  cache_->Release(&table);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cache_->EvictBlock());
  EXPECT_FALSE(cache_->EvictBlock());
  EXPECT_EQ(pool_->pages(1).used(), 0u);
}

// A session that hardly fits: its own older turns are never pushed out by its next one.
TEST_F(PrefixCacheTest, TheNextTurnDoesNotEvictWhatItExtends) {
  Start(12);
  BlockTable table;
  ASSERT_TRUE(Compute(Ids(8, 5), &table));  // somebody else's
  cache_->Release(&table);
  for (uint32_t turn = 1; turn <= 10; ++turn) {
    ASSERT_TRUE(Compute(Ids(turn * kBlock + 1), &table));
    EXPECT_EQ(attached_, turn - 1);
    cache_->Release(&table);
    Check({});
  }
}

TEST_F(PrefixCacheTest, TwoThatComputeTheSameEndWithOneBlock) {
  Start(16);
  BlockTable first, second;
  ASSERT_TRUE(pool_->Grow(2, &first));
  ASSERT_TRUE(pool_->Grow(2, &second));
  const auto keys = Keys(Ids(8));
  for (const auto& key : keys) {
    ASSERT_TRUE(cache_->Seal(key, Grade::kExact, &first));
    ASSERT_TRUE(cache_->Seal(key, Grade::kExact, &second));
  }
  EXPECT_EQ(first.pages[1], second.pages[1]);
  EXPECT_EQ(pool_->pages(1).used(), 2u);
  Check({&first, &second});
}

TEST_F(PrefixCacheTest, AnApproximateBlockServesNoExactRequestAndGivesWayToAnExactOne) {
  Start(16);
  BlockTable table, other;
  const auto ids = Ids(8);
  ASSERT_TRUE(Compute(ids, &table, Grade::kApproximate));
  // In use: the exact one stays private.
  ASSERT_TRUE(Compute(ids, &other, Grade::kExact));
  EXPECT_EQ(attached_, 0u);
  EXPECT_EQ(other.shared.size(), 0u);
  Check({&table, &other});
  cache_->Release(&other);
  cache_->Release(&table);
  EXPECT_TRUE(cache_->EvictBlock());  // the leaf, so that the first block is one
  ASSERT_TRUE(Compute(ids, &table, Grade::kExact));
  EXPECT_EQ(attached_, 0u);
  EXPECT_EQ(table.shared.size(), 2u);
  EXPECT_EQ(cache_->GradeOf(table.shared[0]), Grade::kExact);
  // An approximate request takes exact blocks gladly.
  cache_->Attach(Keys(ids), Grade::kApproximate, &other);
  EXPECT_EQ(other.shared.size(), 2u);
  Check({&table, &other});
}

TEST_F(PrefixCacheTest, DistrustedBlocksAreFoundNoMoreAndGoWithTheirLastHolder) {
  Start(16);
  BlockTable first, second;
  ASSERT_TRUE(Compute(Ids(12), &first));
  ASSERT_TRUE(Compute(Ids(12), &second));
  cache_->Distrust(first);
  EXPECT_TRUE(cache_->Keys().empty());
  cache_->Release(&first);
  Check({&second});
  EXPECT_EQ(cache_->blocks(), 3u);
  cache_->Release(&second);
  Check({});
  EXPECT_EQ(cache_->blocks(), 0u);
}

TEST_F(PrefixCacheTest, AStateIsFoundByTheIdsBehindItsBlocks) {
  Start(32, 8, 2);
  BlockTable table;
  const auto save = [&](const std::vector<TokenId>& ids) {
    EXPECT_TRUE(Compute(ids, &table));
    const bool saved = cache_->Save(std::span(ids).subspan(table.shared.size() * kBlock),
                                    Grade::kExact, &table);
    cache_->Release(&table);
    Check({});
    return saved;
  };
  const auto find = [&](const std::vector<TokenId>& ids, Position reach = 8) {
    cache_->Attach(Keys(ids), Grade::kExact, &table);
    std::vector<PrefixCache::StateId> found;
    cache_->States(ids, table, reach, Grade::kExact, &found);
    std::vector<Position> at;
    for (const auto id : found) at.push_back(cache_->PositionOf(id, table));
    cache_->Release(&table);
    return at;
  };
  EXPECT_TRUE(save(Ids(10)));
  EXPECT_FALSE(save(Ids(10))) << "it is here";
  EXPECT_EQ(find(Ids(20)), (std::vector<Position>{10}));
  EXPECT_EQ(find(Ids(9)), (std::vector<Position>{}));
  auto other = Ids(20);
  other[9] = 3;
  EXPECT_EQ(find(other), (std::vector<Position>{}));
  EXPECT_TRUE(save(Ids(12)));
  EXPECT_EQ(find(Ids(20)), (std::vector<Position>{10, 12}));
  EXPECT_EQ(find(Ids(20), 0), (std::vector<Position>{10, 12}));
  // No room for a third: the one that was used least recently goes.
  EXPECT_TRUE(save(Ids(18)));
  EXPECT_EQ(find(Ids(20), 20), (std::vector<Position>{12, 18}));
  EXPECT_EQ(cache_->states(), 2u);
  EXPECT_EQ(pool_->states().used(), 2u);
  while (cache_->EvictBlock() || cache_->EvictState()) Check({});
  EXPECT_EQ(pool_->states().used(), 0u);
  EXPECT_EQ(pool_->pages(0).used(), 0u);
}

// What routers are told adds up to what is here, whatever happens.
TEST_F(PrefixCacheTest, ManyLivesLoseNothing) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed, 1);
    Start(24, 12, 3);
    std::deque<std::pair<BlockTable, std::vector<TokenId>>> live;
    std::set<uint64_t> told;
    for (int turn = 0; turn < 300; ++turn) {
      if (live.size() < 4 && random.Chance(0.6)) {
        const auto same = static_cast<uint32_t>(random.Below(24));
        const auto ids = Ids(same + 1 + static_cast<uint32_t>(random.Below(8)),
                             static_cast<TokenId>(random.Below(4)), same);
        auto& [table, tokens] = live.emplace_back();
        tokens = ids;
        const Grade grade = random.Chance(0.2) ? Grade::kApproximate : Grade::kExact;
        if (!Compute(ids, &table, grade)) live.pop_back();
      } else if (!live.empty()) {
        auto& [table, ids] = live.front();
        const bool complete = !table.shared.empty() && table.shared.size() == ids.size() / kBlock;
        if (complete && random.Chance(0.5)) {
          (void)cache_->Save(std::span(ids).subspan(table.shared.size() * kBlock), Grade::kExact,
                             &table);
        }
        if (random.Chance(0.05)) cache_->Distrust(table);
        cache_->Release(&table);
        live.pop_front();
      }
      for (const auto& [key, came] : cache_->TakeEvents()) {
        ASSERT_TRUE(came ? told.insert(key).second : told.erase(key) > 0);
      }
      const auto keys = cache_->Keys();
      ASSERT_EQ(std::set<uint64_t>(keys.begin(), keys.end()), told);
      std::vector<const BlockTable*> tables;
      for (const auto& [table, ids] : live) tables.push_back(&table);
      Check(tables);
    }
  }
}

}  // namespace
}  // namespace weir::engine
