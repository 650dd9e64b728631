// SPDX-License-Identifier: Apache-2.0
//
// The parts of a host's store one by one: run index, host tier, window ring.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/stdx/random.h"
#include "kvstore/blob/test_record.h"
#include "kvstore/node/host_tier.h"
#include "kvstore/node/run_index.h"
#include "kvstore/node/window_ring.h"

namespace weir::kv {
namespace {

std::vector<BlockKey> Chain(uint64_t seed, uint32_t blocks) {
  std::vector<BlockKey> keys;
  for (uint32_t i = 0; i < blocks; ++i) keys.push_back(TestKey(seed * 100000 + i));
  return keys;
}

RunId Add(RunIndex* index, const BlockKey& parent, std::span<const BlockKey> keys,
          RunId parent_run = 0, bool approx = false) {
  std::vector<uint16_t> prints;
  for (const BlockKey& key : keys) prints.push_back(key.fingerprint());
  const auto run = index->Insert({.parent = parent.index(),
                                  .last = keys.back().index(),
                                  .fingerprints = prints,
                                  .approx = approx,
                                  .parent_run = parent_run});
  EXPECT_TRUE(run.ok()) << run.status();
  index->SetTier(*run, RunIndex::kHost);
  return *run;
}

const BlockKey kRoot = TestKey(42);

TEST(RunIndex, FindsForksAtEveryOffsetInsideARun) {
  const std::vector<BlockKey> trunk = Chain(1, 12);
  for (uint32_t fork = 1; fork < 12; ++fork) {
    RunIndex index(100);
    std::vector<RunIndex::Hit> hits;
    const RunId first = Add(&index, kRoot, std::span(trunk).first(8));
    Add(&index, trunk[7], std::span(trunk).subspan(8), first);
    std::vector<BlockKey> other(trunk.begin(), trunk.begin() + fork);
    const std::vector<BlockKey> tail = Chain(2 + fork, 5);
    other.insert(other.end(), tail.begin(), tail.end());
    EXPECT_EQ(index.Match(kRoot, other, RunIndex::Want::kAny, &hits), fork);
    Add(&index, trunk[fork - 1], tail, first);
    EXPECT_EQ(index.Match(kRoot, other, RunIndex::Want::kAny, &hits), fork + 5);
    uint32_t at = 0;
    for (const RunIndex::Hit& hit : hits) {
      EXPECT_EQ(hit.at, at);
      at += hit.count;
    }
    EXPECT_EQ(at, fork + 5);
    EXPECT_EQ(index.Match(kRoot, trunk, RunIndex::Want::kAny, &hits), 12u);
    EXPECT_EQ(index.Match(TestKey(43), trunk, RunIndex::Want::kAny, &hits),
              0u);  // another domain's root
  }
}

TEST(RunIndex, ARunGoesWithAllThatHangsOnIt) {
  RunIndex index(100);
  const std::vector<BlockKey> keys = Chain(1, 30);
  RunId run = 0;
  for (uint32_t i = 0; i < 30; i += 3) {
    run = Add(&index, i == 0 ? kRoot : keys[i - 1], std::span(keys).subspan(i, 3), run);
  }
  const RunId other = Add(&index, kRoot, Chain(2, 4));
  std::vector<RunIndex::Hit> hits;
  ASSERT_EQ(index.Match(kRoot, keys, RunIndex::Want::kAny, &hits), 30u);
  std::vector<RunId> gone;
  index.Remove(hits[4].run, &gone);
  EXPECT_EQ(gone.size(), 6u);
  EXPECT_EQ(index.Match(kRoot, keys, RunIndex::Want::kAny, &hits), 12u);
  EXPECT_TRUE(index.Holds(other));
  EXPECT_EQ(index.size(), 5u);
}

TEST(RunIndex, FoundRunsAreLinkedWhenTheyAreMatched) {
  RunIndex index(100);
  const std::vector<BlockKey> keys = Chain(1, 9);
  Add(&index, keys[5], std::span(keys).subspan(6, 3));  // in any order, as a disk tells of them
  Add(&index, kRoot, std::span(keys).first(4));
  Add(&index, keys[2], std::span(keys).subspan(3, 3));
  std::vector<RunIndex::Hit> hits;
  ASSERT_EQ(index.Match(kRoot, keys, RunIndex::Want::kAny, &hits), 9u);
  std::vector<RunId> gone;
  index.Remove(hits[0].run, &gone);
  EXPECT_EQ(gone.size(), 3u);
}

TEST(RunIndex, ExactRequestsDoNotSeeApproxRuns) {
  RunIndex index(10);
  const std::vector<BlockKey> keys = Chain(1, 8);
  const RunId first = Add(&index, kRoot, std::span(keys).first(4));
  Add(&index, keys[3], std::span(keys).subspan(4), first, true);
  std::vector<RunIndex::Hit> hits;
  EXPECT_EQ(index.Match(kRoot, keys, RunIndex::Want::kAny, &hits), 8u);
  EXPECT_EQ(index.Match(kRoot, keys, RunIndex::Want::kExact, &hits), 4u);
}

TEST(RunIndex, MemoryStaysWithinItsBoundThroughChurn) {
  constexpr uint32_t kRuns = 50000;
  RunIndex index(kRuns);
  Random random(3);
  std::vector<RunId> runs;
  uint64_t blocks = 0;
  for (uint64_t i = 0; i < 3 * kRuns; ++i) {
    if (runs.size() == kRuns) {
      const size_t victim = random.Below(runs.size());
      std::vector<RunId> gone;
      blocks -= index.BlocksOf(runs[victim]);
      index.Remove(runs[victim], &gone);
      runs[victim] = runs.back();
      runs.pop_back();
    }
    const std::vector<BlockKey> keys = Chain(i, i % 4 == 0 ? 1 + i % 32 : 32);
    runs.push_back(Add(&index, TestKey(i), keys));
    blocks += keys.size();
  }
  EXPECT_EQ(index.size(), kRuns);
  // 11 more bytes a run are the segment log's.
  EXPECT_LE(index.MemoryBytes() + 11ull * kRuns,
            64ull * kRuns + 2 * blocks + 64ull * kRuns / 20 + 500000);
}

class HostTierTest : public testing::Test {
 protected:
  absl::Status Put(uint64_t seed, uint32_t blocks = 4, uint8_t domain = 0) {
    const TestRecord record = MakeTestRecord(seed, TestShape(blocks), domain);
    return tier_.Put(record.header, static_cast<RunId>(seed), record.payload.span(),
                     HostTier::Dirty::kYes, &gone_);
  }
  bool Right(uint64_t seed) {
    const HostRef ref = tier_.Get(static_cast<RunId>(seed));
    if (!ref) return false;
    const RecordShape shape = ref.header().shape;
    std::vector<std::byte> out(shape.section[1].block_bytes * 2),
        expected(shape.section[1].block_bytes);
    if (!tier_.CopyOut(ref, 1, 1, 2, out).ok()) return false;
    FillBlock(seed, 1, 2, expected);
    return std::equal(expected.begin(), expected.end(),
                      out.begin() + static_cast<long>(expected.size()));
  }

  AlignedBuffer memory_{10 * TestShape(4).PayloadBytes()};
  HostTier tier_{memory_.span(), memory_.bytes()};
  std::vector<RunId> gone_;
};

TEST_F(HostTierTest, EvictsTheLeastRecentlyUsedThatNobodyHolds) {
  for (uint64_t seed = 1; seed <= 10; ++seed) ASSERT_TRUE(Put(seed).ok());
  EXPECT_TRUE(gone_.empty());
  tier_.Touch(1);
  const HostRef held = tier_.Get(2);
  ASSERT_TRUE(Put(11).ok());
  ASSERT_TRUE(Put(12).ok());
  EXPECT_EQ(gone_, (std::vector<RunId>{3, 4}));
  for (const uint64_t seed : {1, 2, 5, 11, 12}) EXPECT_TRUE(Right(seed)) << seed;
  EXPECT_FALSE(tier_.Get(3));
}

// KVS D85: what a step still reads is not used again.
TEST_F(HostTierTest, D85_MemoryUnderAReferenceIsNotUsedAgain) {
  ASSERT_TRUE(Put(1).ok());
  HostRef held = tier_.Get(1);
  tier_.Drop(1);
  EXPECT_FALSE(tier_.Get(1));
  const std::vector<std::byte> before(held.payload().begin(), held.payload().end());
  for (uint64_t seed = 2; seed <= 30; ++seed) ASSERT_TRUE(Put(seed).ok());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), held.payload().begin()));
  EXPECT_EQ(tier_.stats().held_bytes, memory_.bytes());
  std::vector<HostRef> all;
  for (const RunId run : {22, 23, 24, 25, 26, 27, 28, 29, 30}) all.push_back(tier_.Get(run));
  EXPECT_EQ(ReasonOf(Put(31)), Reason::kNoCapacity);  // full is an answer
  held.Reset();
  EXPECT_TRUE(Put(31).ok());
}

TEST_F(HostTierTest, HolesGrowTogetherAgain) {
  for (int round = 0; round < 50; ++round) {
    for (uint64_t i = 0; i < 8; ++i)
      ASSERT_TRUE(Put(1000 + round * 100 + i, 1 + (i + round) % 8).ok());
  }
  ASSERT_TRUE(Put(9000, 32).ok());
  ASSERT_TRUE(Put(9001, 4).ok());
}

// KVS D81 and D83: what is being written is not read, and who dies over it blocks nobody.
TEST_F(HostTierTest, D83_AReservationThatNobodyFillsExpires) {
  const TestRecord record = MakeTestRecord(7, TestShape(4));
  const auto first = tier_.Reserve(record.header, Instant(Millis(30)), &gone_);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(tier_.Get(7));  // not readable before it is whole
  tier_.Expire(Instant(Millis(29)));
  EXPECT_EQ(tier_.stats().expired, 0u);
  tier_.Expire(Instant(Millis(30)));
  EXPECT_EQ(tier_.stats().expired, 1u);
  EXPECT_EQ(tier_.stats().held_bytes, 0u);
  EXPECT_EQ(ReasonOf(tier_.Commit(*first, 7, HostTier::Dirty::kYes)), Reason::kLeaseExpired);
  const auto second = tier_.Reserve(record.header, Instant(Millis(90)), &gone_);
  ASSERT_TRUE(second.ok());
  std::memcpy(tier_.Payload(*second).data(), record.payload.data(), record.payload.bytes());
  ASSERT_TRUE(tier_.Commit(*second, 7, HostTier::Dirty::kYes).ok());
  EXPECT_TRUE(Right(7));
}

TEST_F(HostTierTest, FlippedBitsAreNoticedWhenBlocksAreCopiedOut) {
  ASSERT_TRUE(Put(1).ok());
  for (uint64_t at = 0; at < TestShape(4).SectionAt(1) + 2500 * 4; at += 97) {
    memory_.span()[at] ^= std::byte{4};
    const HostRef ref = tier_.Get(1);
    const RecordShape shape = ref.header().shape;
    bool whole = true;
    for (uint32_t i = 0; i < 2; ++i) {
      std::vector<std::byte> out(shape.section[i].block_bytes * 4);
      whole = tier_.CopyOut(ref, i, 0, 4, out).ok() && whole;
    }
    const bool padding = at >= 4000 && at < 4096;
    ASSERT_EQ(whole, padding) << at;
    memory_.span()[at] ^= std::byte{4};
  }
}

TEST_F(HostTierTest, AFloodDoesNotPushAnotherBelowItsGuarantee) {
  const uint64_t one = TestShape(4).PayloadBytes();
  DomainId victim{}, attacker{};
  victim[0] = 1;
  attacker[0] = 2;
  ASSERT_TRUE(tier_.SetShare(victim, {.guaranteed_bytes = 4 * one}).ok());
  EXPECT_FALSE(tier_.SetShare(attacker, {.guaranteed_bytes = 6 * one}).ok());
  for (uint64_t seed = 1; seed <= 6; ++seed) ASSERT_TRUE(Put(seed, 4, 1).ok());
  for (uint64_t seed = 101; seed <= 200; ++seed) ASSERT_TRUE(Put(seed, 4, 2).ok());
  EXPECT_EQ(tier_.HeldBy(victim), 4 * one);
  for (const uint64_t seed : {3, 4, 5, 6}) EXPECT_TRUE(Right(seed)) << seed;
  ASSERT_TRUE(tier_.SetShare(attacker, {.limit_bytes = 2 * one}).ok());
  ASSERT_TRUE(Put(201, 4, 2).ok());
  EXPECT_EQ(tier_.HeldBy(attacker), 2 * one);  // its own made room
  EXPECT_EQ(ReasonOf(Put(202, 12, 2)), Reason::kTenantRate);
  EXPECT_EQ(tier_.HeldBy(victim), 4 * one);
}

TEST_F(HostTierTest, TheColdestAreWrittenFirst) {
  for (uint64_t seed = 1; seed <= 10; ++seed) ASSERT_TRUE(Put(seed).ok());
  tier_.Touch(1);
  RunId run = 0;
  const uint64_t two = 2 * TestShape(4).PayloadBytes();
  HostRef first = tier_.NextToWrite(two, &run);
  EXPECT_EQ(run, 2u);
  HostRef second = tier_.NextToWrite(two, &run);
  EXPECT_EQ(run, 3u);
  EXPECT_FALSE(tier_.NextToWrite(0, &run));
  ASSERT_TRUE(Put(11).ok());  // does not wait for the disk
  EXPECT_EQ(gone_, std::vector<RunId>{4});
  first.Reset();
  tier_.Written(2, true);
  ASSERT_TRUE(Put(12).ok());
  EXPECT_EQ(gone_.back(), 2u);
}

class WindowRingTest : public testing::Test {
 protected:
  static constexpr uint32_t kState = 5000;
  std::vector<std::byte> StateOf(uint64_t seed) {
    std::vector<std::byte> state(kState - seed % 50);
    FillBlock(seed, 0, 0, state);
    return state;
  }
  AlignedBuffer memory_{5 * WindowRing::SlotBytes(kState)};
  WindowRing ring_{memory_.span(), {.state_bytes_max = kState, .time_to_live = Millis(1000)}};
  std::vector<std::byte> out_;
};

TEST_F(WindowRingTest, GivesBackAStateUntilItIsTooOldOrOverwritten) {
  ASSERT_EQ(ring_.slots(), 5u);
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(
        ring_.Put(Instant(Millis(100)), TestKey(i), static_cast<Position>(i * 7), StateOf(i)).ok());
  }
  for (uint64_t i = 0; i < 5; ++i) {
    const auto position = ring_.Get(Instant(Millis(1099)), TestKey(i), &out_);
    ASSERT_TRUE(position.ok()) << position.status();
    EXPECT_EQ(*position, i * 7);
    EXPECT_EQ(out_, StateOf(i));
  }
  EXPECT_EQ(ReasonOf(ring_.Get(Instant(Millis(1100)), TestKey(0), &out_).status()),
            Reason::kLeaseExpired);
  EXPECT_EQ(ReasonOf(ring_.Get(Instant(Millis(99)), TestKey(0), &out_).status()),
            Reason::kLeaseExpired);  // the clock jumped
  ASSERT_TRUE(ring_.Put(Instant(Millis(200)), TestKey(9), 1, StateOf(9)).ok());
  EXPECT_EQ(ReasonOf(ring_.Get(Instant(Millis(201)), TestKey(0), &out_).status()),
            Reason::kUnknownModel);
  ring_.MarkCold(TestKey(3));
  ASSERT_TRUE(ring_.Put(Instant(Millis(200)), TestKey(10), 1, StateOf(10)).ok());
  EXPECT_FALSE(ring_.Get(Instant(Millis(201)), TestKey(3), &out_).ok());
  EXPECT_TRUE(ring_.Get(Instant(Millis(201)), TestKey(1), &out_).ok());
  EXPECT_EQ(
      ReasonOf(ring_.Put(Instant(Millis(1)), TestKey(1), 1, std::vector<std::byte>(kState + 1))),
      Reason::kTooLarge);
}

// A reader of another process copies while the owner overwrites: it sees a mixture of old and new
// at any point, which must be neither.
TEST_F(WindowRingTest, AHalfOverwrittenSlotIsRefused) {
  ASSERT_TRUE(ring_.Put(Instant(Millis(1)), TestKey(1), 1, StateOf(1)).ok());
  const auto slot = ring_.SlotOf(TestKey(1));
  ASSERT_TRUE(slot.ok());
  const std::vector<std::byte> before(ring_.Slot(*slot).begin(), ring_.Slot(*slot).end());
  ASSERT_TRUE(ring_.Put(Instant(Millis(2)), TestKey(1), 1, StateOf(2)).ok());
  const std::vector<std::byte> after(ring_.Slot(*slot).begin(), ring_.Slot(*slot).end());
  for (size_t cut = 1; cut < before.size(); cut += 13) {
    std::vector<std::byte> mixture(after.begin(), after.begin() + static_cast<long>(cut));
    mixture.insert(mixture.end(), before.begin() + static_cast<long>(cut), before.end());
    if (mixture == after) continue;  // what is missing are the zeros of a small generation
    ASSERT_FALSE(WindowRing::ReadSlot(Instant(Millis(3)), TestKey(1), Millis(1000), mixture).ok())
        << cut;
  }
  for (size_t bit = 0; bit < 64 * 8; ++bit) {
    std::vector<std::byte> flipped = after;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_FALSE(WindowRing::ReadSlot(Instant(Millis(3)), TestKey(1), Millis(1000), flipped).ok())
        << bit;
  }
  EXPECT_FALSE(
      WindowRing::ReadSlot(Instant(Millis(3)), TestKey(1), Millis(1000), std::span(after).first(20))
          .ok());
}

}  // namespace
}  // namespace weir::kv
