// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/cache_layout.h"
#include "engine/cache/kv_pool.h"
#include "gtest/gtest.h"

namespace weir::engine {
namespace {

CacheLayout TwoParts() {
  return CacheLayout(4, {{.name = "enc", .part = Part::kEncoder, .row_bytes = 8},
                         {.name = "dec", .part = Part::kDecoder, .ratio = 2, .row_bytes = 8},
                         {.name = "ring", .kind = StoreKind::kWindow, .row_bytes = 8, .rows = 6}});
}

KvMemory Memory(PageId pages, PageId states) {
  KvMemory memory;
  memory.page_count[0] = memory.page_count[1] = pages;
  memory.state_count = states;
  return memory;
}

TEST(KvPool, GrowsAllOrNothing) {
  KvPool pool(TwoParts(), ShareOf(Memory(10, 2)));
  BlockTable a, b, c;
  ASSERT_TRUE(pool.Grow(6, &a));
  EXPECT_FALSE(pool.Grow(5, &b));
  EXPECT_TRUE(b.empty());
  ASSERT_TRUE(pool.Grow(4, &b));
  EXPECT_EQ(pool.FreeBlocks(), 0u);
  EXPECT_FALSE(pool.Grow(0, &c)) << "no state page is left";
  pool.Release(&a);
  EXPECT_EQ(pool.FreeBlocks(), 6u);
  ASSERT_TRUE(pool.Grow(1, &c));
  PageAudit audit(pool);
  audit.Add(b);
  audit.Add(c);
  EXPECT_EQ(audit.Verdict(), "");
}

TEST(KvPool, AuditSeesLostAndDoublePages) {
  KvPool pool(TwoParts(), ShareOf(Memory(10, 2)));
  BlockTable a;
  ASSERT_TRUE(pool.Grow(3, &a));
  PageAudit lost(pool);
  EXPECT_NE(lost.Verdict(), "");
  PageAudit twice(pool);
  twice.Add(a);
  twice.Add(a);
  EXPECT_NE(twice.Verdict(), "");
}

TEST(KvPool, PagesChangeOwner) {
  KvPool left(TwoParts(), ShareOf(Memory(10, 4), 0, 2));
  KvPool right(TwoParts(), ShareOf(Memory(10, 4), 1, 2));
  BlockTable a, b;
  ASSERT_TRUE(left.Grow(3, &a));
  ASSERT_TRUE(right.Grow(3, &b));
  EXPECT_FALSE(left.Exchange(a, a)) << "a page that is ours already cannot join";
  ASSERT_TRUE(left.Exchange(a, b));
  ASSERT_TRUE(right.Exchange(b, a));
  EXPECT_EQ(left.TotalBlocks(), 5u);
  EXPECT_EQ(right.TotalBlocks(), 5u);
  left.Release(&b);
  right.Release(&a);
  EXPECT_EQ(left.FreeBlocks(), 5u);
  EXPECT_EQ(right.FreeBlocks(), 5u);
}

TEST(KvPool, AbandonedPagesLeaveThePool) {
  KvPool pool(TwoParts(), ShareOf(Memory(10, 2)));
  BlockTable a;
  ASSERT_TRUE(pool.Grow(3, &a));
  pool.Abandon(&a);
  EXPECT_EQ(pool.TotalBlocks(), 7u);
  EXPECT_EQ(pool.FreeBlocks(), 7u);
}

TEST(CacheLayout, LaysStoresOutByPartAndValidates) {
  const CacheLayout layout = TwoParts();
  ASSERT_TRUE(layout.Validate().ok());
  EXPECT_EQ(layout.page_bytes(Part::kEncoder), 64u);
  EXPECT_EQ(layout.PageOffset(1, 0, 3), 8u);
  EXPECT_EQ(layout.StateOffset(2, 0, 7), 8u);
  EXPECT_FALSE(CacheLayout(4, {{.name = "x", .ratio = 3, .row_bytes = 1}}).Validate().ok());
  EXPECT_NE(layout.Digest(), CacheLayout(8, layout.stores()).Digest());
}

}  // namespace
}  // namespace weir::engine
