// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/stdx/bounded_queue.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "base/stdx/ids.h"
#include "base/stdx/random.h"
#include "base/stdx/units.h"

namespace weir {
namespace {

TEST(Hash, KnownDigests) {
  EXPECT_EQ(HexOf(Sha256(BytesOf("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Crc32c(BytesOf("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(BytesOf("6789"), Crc32c(BytesOf("12345"))), 0xe3069283u);
}

TEST(BoundedQueue, SaysNoWhenFullAndAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  queue.Close();
  std::vector<int> out;
  EXPECT_EQ(queue.PopSome(10, &out), 2u);
  EXPECT_FALSE(queue.TryPush(4));
}

TEST(Random, IsAFunctionOfItsArguments) {
  Random a(7), b(7), c(8);
  EXPECT_EQ(a.Next(), b.Next());
  EXPECT_NE(a.Next(), c.Next());
  for (int i = 0; i < 1000; ++i) {
    const int64_t x = a.Between(-3, 3);
    EXPECT_GE(x, -3);
    EXPECT_LE(x, 3);
  }
}

TEST(Check, ProbesCount) {
  for (int i = 0; i < 3; ++i) WEIR_REACHED("stdx_test: loop");
  EXPECT_EQ(ReachedCount("stdx_test: loop"), 3u);
}

TEST(Units, Rounding) {
  EXPECT_EQ(CeilDiv(5, 2), 3);
  EXPECT_EQ(AlignUp(5u, 4u), 8u);
  EXPECT_EQ(AlignDown(7u, 4u), 4u);
}

}  // namespace
}  // namespace weir
