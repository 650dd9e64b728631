// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/lease.h"

#include "gtest/gtest.h"

namespace weir::kv {
namespace {

Instant At(int64_t ms) { return Instant(Millis(ms)); }

TEST(LeaseTable, ExpiresByDeadlineThenByOrderOfSetting) {
  LeaseTable<int> leases(8);
  ASSERT_TRUE(leases.Grant(1, At(30)));
  ASSERT_TRUE(leases.Grant(2, At(10)));
  ASSERT_TRUE(leases.Grant(3, At(30)));
  ASSERT_TRUE(leases.Grant(4, At(10)));
  EXPECT_EQ(leases.NextDeadline(), At(10));
  std::vector<int> out;
  leases.Expire(At(9), &out);
  EXPECT_TRUE(out.empty());
  leases.Expire(At(10), &out);
  EXPECT_EQ(out, (std::vector<int>{2, 4}));
  EXPECT_EQ(leases.NextDeadline(), At(30));
  leases.Expire(At(1000), &out);
  EXPECT_EQ(out, (std::vector<int>{2, 4, 1, 3}));
  EXPECT_EQ(leases.NextDeadline(), kNever);
  EXPECT_TRUE(leases.empty());
}

TEST(LeaseTable, RenewalMovesLaterOnly) {
  LeaseTable<int> leases(2);
  EXPECT_FALSE(leases.Renew(1, At(5)));
  ASSERT_TRUE(leases.Grant(1, At(10)));
  EXPECT_TRUE(leases.Renew(1, At(20)));
  EXPECT_TRUE(leases.Renew(1, At(15)));
  EXPECT_EQ(leases.DeadlineOf(1), At(20));
  ASSERT_TRUE(leases.Grant(1, At(12)));
  EXPECT_EQ(leases.DeadlineOf(1), At(12)) << "a grant sets, also earlier";
  EXPECT_EQ(leases.size(), 1u);
}

TEST(LeaseTable, ReleasedAndExpiredKeysAreGone) {
  LeaseTable<int> leases(2);
  ASSERT_TRUE(leases.Grant(1, At(10)));
  EXPECT_TRUE(leases.Release(1));
  EXPECT_FALSE(leases.Release(1));
  EXPECT_EQ(leases.NextDeadline(), kNever);
  std::vector<int> out;
  leases.Expire(At(100), &out);
  EXPECT_TRUE(out.empty());
}

TEST(LeaseTable, FullIsAnAnswer) {
  LeaseTable<int> leases(2);
  ASSERT_TRUE(leases.Grant(1, At(10)));
  ASSERT_TRUE(leases.Grant(2, At(10)));
  EXPECT_FALSE(leases.Grant(3, At(10)));
  EXPECT_TRUE(leases.Grant(2, At(11))) << "a known key needs no room";
  std::vector<int> out;
  leases.Expire(At(10), &out);
  EXPECT_EQ(out, std::vector<int>{1});
  EXPECT_TRUE(leases.Grant(3, At(12)));
}

TEST(LeaseTable, PlantedBugKeepsLeasesForever) {
  LeaseTable<int> leases(2);
  ASSERT_TRUE(leases.Grant(1, At(10)));
  g_planted = static_cast<int>(Planted::kLeaseNeverExpires);
  std::vector<int> out;
  leases.Expire(At(100), &out);
  EXPECT_EQ(leases.NextDeadline(), kNever);
  g_planted = 0;
  EXPECT_TRUE(out.empty());
  leases.Expire(At(100), &out);
  EXPECT_EQ(out.size(), 1u);
}

}  // namespace
}  // namespace weir::kv
