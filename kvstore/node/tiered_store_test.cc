// SPDX-License-Identifier: Apache-2.0
//
// Histories: many clients put, read and erase prompts that fork from each other, over tiers that
// are far too small and a disk that errs. Every byte follows from its block's key, so any answer
// can be checked.
#include "kvstore/node/tiered_store.h"

#include <gtest/gtest.h>

#include "kvstore/blob/mem_blob.h"
#include "kvstore/blob/mem_directory.h"
#include "kvstore/blob/test_record.h"
#include "kvstore/key/namespace.h"

namespace weir::kv {
namespace {

RecordShape ShapeOf(uint32_t blocks) {
  RecordShape shape;
  shape.blocks = blocks;
  shape.sections = 2;
  shape.section[0] = {1, 300};
  shape.section[1] = {2, 700};
  return shape;
}

uint64_t SeedOf(const BlockKey& key) { return key.index().hi; }

struct Prompt {
  DomainId domain{};
  BlockKey root;
  std::vector<BlockKey> keys;
};

class History {
 public:
  History(TieredStore* store, uint64_t seed) : store_(*store), random_(seed) {}

  // A prompt of one of four domains that shares a prefix with others of it.
  Prompt Next() {
    Prompt prompt;
    const uint64_t domain = random_.Below(4);
    prompt.domain[0] = static_cast<uint8_t>(domain);
    prompt.root = DomainRoot("secret", {.account = std::to_string(domain)}, {.model = "m"});
    KeyChain chain(prompt.root, 2);
    const uint64_t blocks = 1 + random_.Below(24);
    uint64_t branch = 0;
    for (uint64_t i = 0; i < blocks; ++i) {
      if (random_.Chance(0.1)) branch = 1 + random_.Below(3);
      const TokenId ids[] = {static_cast<TokenId>(i), static_cast<TokenId>(branch)};
      chain.Append(ids);
    }
    prompt.keys.assign(chain.keys().begin(), chain.keys().end());
    return prompt;
  }

  void PutSome(const Prompt& prompt) {
    std::vector<TieredStore::Hit> hits;
    uint32_t at = store_.Match(prompt.root, prompt.keys, RunIndex::Want::kAny, &hits);
    while (at < prompt.keys.size()) {
      const auto blocks =
          static_cast<uint32_t>(std::min<uint64_t>(1 + random_.Below(6), prompt.keys.size() - at));
      RecordHeader header;
      header.domain = prompt.domain;
      header.shape = ShapeOf(blocks);
      AlignedBuffer payload(header.shape.PayloadBytes());
      for (uint32_t i = 0; i < 2; ++i) {
        for (uint32_t j = 0; j < blocks; ++j) {
          FillBlock(SeedOf(prompt.keys[at + j]), i, 0,
                    payload.span().subspan(header.shape.BlockAt(i, j),
                                           header.shape.section[i].block_bytes));
        }
      }
      if (!store_.Put(prompt.root, prompt.keys, at, header, payload.span()).ok()) return;
      at += blocks;
    }
    ++puts;
  }

  // Reads the whole hit back, block by block, from wherever it is.
  void Read(const Prompt& prompt) {
    std::vector<TieredStore::Hit> hits;
    const uint32_t covered = store_.Match(prompt.root, prompt.keys, RunIndex::Want::kAny, &hits);
    uint32_t at = 0;
    for (const TieredStore::Hit& hit : hits) {
      ASSERT_EQ(hit.at, at);
      at += hit.count;
      if (const HostRef ref = store_.Get(hit, prompt.keys[hit.at + hit.count - 1])) {
        for (uint32_t i = 0; i < 2; ++i) {
          std::vector<std::byte> out(ref.header().shape.section[i].block_bytes * hit.count);
          if (store_.host().CopyOut(ref, i, hit.first, hit.count, out).ok())
            CheckBytes(prompt, hit, i, out.data());
        }
        ++host_reads;
      } else {
        Fetch(prompt, hit);
      }
    }
    ASSERT_EQ(at, covered);
  }

  void Fetch(const Prompt& prompt, const TieredStore::Hit& hit) {
    BlobRead read{.shape = ShapeOf(store_.index().BlocksOf(hit.run)),
                  .sections = 3,
                  .last = prompt.keys[hit.at + hit.count - 1]};
    const ReadPlan plan = PlanRead(read.shape, hit.first, hit.count, 3);
    AlignedBuffer buffer(plan.bytes);
    read.into = buffer.span();
    const auto id = store_.Fetch(hit, read);
    if (!id.ok()) return;
    for (int i = 0; i < 1000; ++i) {
      std::vector<TieredStore::Fetched> fetched;
      store_.Poll(IoWait::kForOne, &fetched);
      if (fetched.empty()) continue;
      ASSERT_EQ(fetched[0].id, *id);
      if (!fetched[0].status.ok()) return;
      ++disk_reads;
      for (uint32_t part = 0; part < plan.part_count; ++part) {
        CheckBytes(prompt, hit, plan.parts[part].section, buffer.data() + plan.parts[part].view_at);
      }
      return;
    }
    FAIL() << "a fetch did not end";
  }

  void CheckBytes(const Prompt& prompt, const TieredStore::Hit& hit, uint32_t section,
                  const std::byte* got) {
    const uint32_t bytes = ShapeOf(1).section[section].block_bytes;
    std::vector<std::byte> expected(bytes);
    for (uint32_t j = 0; j < hit.count; ++j) {
      FillBlock(SeedOf(prompt.keys[hit.at + j]), section, 0, expected);
      ASSERT_EQ(std::memcmp(expected.data(), got + j * bytes, bytes), 0) << "wrong bytes";
    }
  }

  void Run(int operations) {
    std::vector<TieredStore::Fetched> none;
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      const Prompt prompt = Next();
      const uint64_t what = random_.Below(1000);
      if (what < 400)
        PutSome(prompt);
      else if (what < 990)
        Read(prompt);
      else if (what < 993)
        Erase(prompt);
      store_.Poll(IoWait::kNow, &none);
      ASSERT_TRUE(none.empty());
    }
  }

  void Erase(const Prompt& prompt) {
    ASSERT_TRUE(store_.EraseDomain(prompt.domain).ok());
    std::vector<TieredStore::Hit> hits;
    for (int i = 0; i < 20; ++i) {
      const Prompt other = Next();
      if (other.domain != prompt.domain) continue;
      ASSERT_EQ(store_.Match(other.root, other.keys, RunIndex::Want::kAny, &hits), 0u);
    }
  }

  uint64_t puts = 0, host_reads = 0, disk_reads = 0;

 private:
  TieredStore& store_;
  Random random_;
};

TieredOptions Small(AlignedBuffer* memory) {
  return {.arena = memory->span(),
          .host_bytes = memory->bytes(),
          .runs_max = 5000,
          .host_free_share = 0.4};
}

TEST(TieredStore, HistoriesOverMemoryNeverGiveWrongBytes) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    AlignedBuffer memory(160 * kKiB);
    auto store = TieredStore::Create(Small(&memory), std::make_unique<MemBlob>(400 * kKiB));
    History history(store.get(), seed);
    history.Run(3000);
    EXPECT_GT(history.puts, 500u);
    EXPECT_GT(history.host_reads, 500u);
    EXPECT_GT(history.disk_reads, 100u);
    EXPECT_EQ(store->stats().disk.records > 0, true);
  }
}

// KVS D80 and D82: contexts far beyond the host tier come back from the disk right or not at all.
TEST(TieredStore, D80_HistoriesOverABadDiskNeverGiveWrongBytes) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    MemDirectory::World world;
    Random faults(seed, 1);
    world.outcome = [&](const IoRequest& request, int64_t bytes) -> int64_t {
      if (!faults.Chance(0.03)) return bytes;
      if (request.kind == IoRequest::Kind::kRead &&
          faults.Chance(0.7)) {  // flips a bit and says nothing
        static_cast<char*>(request.parts[request.part_count - 1].iov_base)[faults.Below(2000)] ^= 8;
        return bytes;
      }
      return faults.Chance(0.5) ? -EIO : bytes - 4096;
    };
    AlignedBuffer memory(160 * kKiB);
    const SegmentLogOptions small{.capacity_bytes = 6 * 128 * kKiB, .segment_bytes = 128 * kKiB};
    auto log = SegmentLog::Open(std::make_unique<MemDirectory>(&world), small,
                                [](const FoundRecord&) { return 0u; });
    ASSERT_TRUE(log.ok());
    auto store = TieredStore::Create(Small(&memory), *std::move(log));
    History history(store.get(), seed);
    history.Run(3000);
    EXPECT_GT(history.disk_reads, 100u);
    EXPECT_GT(store->stats().disk.damaged, 0u);
    EXPECT_GT(store->stats().disk.evicted, 0u);
  }
}

// The index knows 16 bits of a block: what it takes for a hit is settled by the whole key.
TEST(TieredStore, TwoBlocksThatTheIndexCannotTellApartAreTold) {
  AlignedBuffer memory(160 * kKiB);
  auto store = TieredStore::Create(Small(&memory), nullptr);
  const BlockKey root = TestKey(1);
  std::vector<BlockKey> keys = {TestKey(2), TestKey(3), TestKey(4)};
  RecordHeader header;
  header.shape = ShapeOf(3);
  AlignedBuffer payload(header.shape.PayloadBytes());
  ASSERT_TRUE(store->Put(root, keys, 0, header, payload.span()).ok());
  BlockKey twin = TestKey(5);
  twin.bytes[16] = keys[1].bytes[16];
  twin.bytes[17] = keys[1].bytes[17];
  ASSERT_EQ(twin.fingerprint(), keys[1].fingerprint());
  const std::vector<BlockKey> other = {keys[0], twin};
  std::vector<TieredStore::Hit> hits;
  ASSERT_EQ(store->Match(root, other, RunIndex::Want::kAny, &hits), 2u);
  EXPECT_FALSE(store->Get(hits[0], other[1]));
  ASSERT_EQ(store->Match(root, keys, RunIndex::Want::kAny, &hits), 3u);
  EXPECT_TRUE(store->Get(hits[0], keys[2]));
}

TEST(TieredStore, AClientThatKeepsAReferenceIsNotDisturbed) {
  AlignedBuffer memory(160 * kKiB);
  auto store = TieredStore::Create(Small(&memory), nullptr);
  History history(store.get(), 1);
  const Prompt prompt = history.Next();
  history.PutSome(prompt);
  std::vector<TieredStore::Hit> hits;
  ASSERT_GT(store->Match(prompt.root, prompt.keys, RunIndex::Want::kAny, &hits), 0u);
  const HostRef ref = store->Get(hits[0], prompt.keys[hits[0].count - 1]);
  ASSERT_TRUE(ref);
  const std::vector<std::byte> before(ref.payload().begin(), ref.payload().end());
  history.Run(1500);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), ref.payload().begin()));
}

}  // namespace
}  // namespace weir::kv
