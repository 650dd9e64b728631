// SPDX-License-Identifier: Apache-2.0
//
// What disks and crashes do to a segment log: whatever it is, what comes back is right or a miss.
#include "kvstore/blob/segment_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/stdx/check.h"
#include "kvstore/blob/mem_directory.h"
#include "kvstore/blob/test_record.h"

namespace weir::kv {
namespace {

constexpr uint64_t kSegmentBytes = 128 * kKiB;
constexpr SegmentLogOptions kSmall = {.capacity_bytes = 6 * kSegmentBytes,
                                      .segment_bytes = kSegmentBytes};
const RecordShape kShape = TestShape(4);

// A log over a folder in memory, which can be left and opened again. A record's tag is its seed.
struct Disk {
  MemDirectory::World world;
  std::unique_ptr<SegmentLog> log;
  std::map<uint64_t, Place> present;
  std::vector<BlobEvent> events;

  absl::Status Open() {
    present.clear();
    auto opened = SegmentLog::Open(std::make_unique<MemDirectory>(&world), kSmall,
                                   [&](const FoundRecord& record) {
                                     const auto seed = SeedOf(record.last);
                                     present[seed] = record.place;
                                     return static_cast<BlobTag>(seed);
                                   });
    if (!opened.ok()) return opened.status();
    log = *std::move(opened);
    return absl::OkStatus();
  }

  static uint64_t SeedOf(const IndexKey& last) {
    for (uint64_t seed = 1; seed < 200; ++seed) {
      if (TestKey(seed * 1000 + kShape.blocks - 1).index() == last) return seed;
    }
    return 0;
  }

  absl::Status Put(uint64_t seed, uint8_t domain = 0) {
    const TestRecord record = MakeTestRecord(seed, kShape, domain);
    WEIR_ASSIGN(const BlobId id,
                log->Append(record.header, record.payload.span(), static_cast<BlobTag>(seed)));
    const BlobEvent event = Await(log.get(), id, &events);
    if (event.status.ok()) present[seed] = event.place;
    for (const BlobEvent& other : events) {
      if (other.kind == BlobEvent::Kind::kGone) present.erase(other.tag);
      if (other.kind == BlobEvent::Kind::kMoved) present[other.tag] = other.place;
    }
    events.clear();
    return event.status;
  }

  // OK only with the right bytes; a wrong one fails the test.
  absl::Status Get(uint64_t seed, Place place) {
    AlignedBuffer buffer(kShape.PayloadBytes());
    const BlobRead read{.place = place,
                        .shape = kShape,
                        .first = 0,
                        .count = kShape.blocks,
                        .sections = 3,
                        .last = TestKey(seed * 1000 + kShape.blocks - 1),
                        .into = buffer.span()};
    WEIR_ASSIGN(const BlobId id, log->Read(read));
    const absl::Status status = Await(log.get(), id, &events).status;
    if (status.ok()) {
      EXPECT_TRUE(HasBytesOf(seed, read)) << "wrong bytes of " << seed;
    }
    return status;
  }

  // How many of those present are whole.
  size_t ReadAll() {
    size_t whole = 0;
    const std::map<uint64_t, Place> now = present;
    for (const auto& [seed, place] : now) whole += Get(seed, place).ok() ? 1 : 0;
    return whole;
  }
};

TEST(SegmentLog, EverythingIsThereAfterARestart) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  for (uint64_t seed = 1; seed <= 20; ++seed) ASSERT_TRUE(disk.Put(seed).ok());
  for (int i = 0; i < 3; ++i) {
    disk.log.reset();
    ASSERT_TRUE(disk.Open().ok());
    EXPECT_EQ(disk.present.size(), 20u);
    EXPECT_EQ(disk.ReadAll(), 20u);
    EXPECT_EQ(disk.log->stats().records, 20u);
  }
  EXPECT_LT(disk.log->stats().held_bytes,
            21 * (kShape.RecordBytes() + kRecordPage));  // no preallocated rest
}

// A crash after every write, torn at every page and once in the middle of one.
TEST(SegmentLog, TornWritesAreMissesNeverWrongBytes) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  size_t all = 0;
  std::vector<size_t> published;  // records that had been acknowledged after so many changes
  for (uint64_t seed = 1; seed <= 9; ++seed) {
    if (seed == 5) {
      disk.log.reset();
      ASSERT_TRUE(disk.Open().ok());
    }
    ASSERT_TRUE(disk.Put(seed).ok());
    published.resize(disk.world.journal.size(), all);
    ++all;
  }
  disk.log.reset();
  published.resize(disk.world.journal.size(), all);
  const std::vector<MemDirectory::Change> journal = disk.world.journal;
  for (size_t changes = 0; changes <= journal.size(); ++changes) {
    const bool write =
        changes > 0 && journal[changes - 1].kind == MemDirectory::Change::Kind::kWrite;
    const uint64_t whole = write ? journal[changes - 1].bytes.size() : 0;
    for (uint64_t torn = 0; torn <= whole; torn += torn == kRecordPage       ? 700
                                                   : torn % kRecordPage == 0 ? kRecordPage
                                                                             : kRecordPage - 700) {
      Disk after;
      after.world.files = MemDirectory::After(journal, changes, torn);
      ASSERT_TRUE(after.Open().ok()) << changes;
      const size_t found = after.ReadAll();
      ASSERT_LE(found, 9u);
      if (changes > 0 && torn == whole) {
        ASSERT_GE(found, published[changes - 1]) << "after change " << changes;
      }
      ASSERT_TRUE(after.Put(60).ok());
      ASSERT_TRUE(after.Get(60, after.present.at(60)).ok());
    }
  }
}

TEST(SegmentLog, FlippedBitsAreMissesAndTheRecordGoes) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  for (uint64_t seed = 1; seed <= 8; ++seed) ASSERT_TRUE(disk.Put(seed).ok());
  disk.log.reset();
  const MemDirectory::Files files = disk.world.files;
  size_t misses = 0;
  for (const auto& [name, bytes] : files) {
    for (size_t at = 0; at < bytes.size(); at += at < 600 ? 23 : 997) {
      Disk other;
      other.world.files = files;
      other.world.files[name][at] = static_cast<char>(other.world.files[name][at] ^ (1 << at % 8));
      ASSERT_TRUE(other.Open().ok());
      const size_t present = other.present.size();
      const size_t whole = other.ReadAll();
      misses += 8 - whole;
      ASSERT_GE(whole + (name == kStoreFile ? 8 : 1), present);
      ASSERT_EQ(other.log->stats().records, whole);  // what was found damaged is not kept
    }
  }
  EXPECT_GT(misses, 50u);
}

TEST(SegmentLog, OneDamagedSectionLeavesTheOther) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  ASSERT_TRUE(disk.Put(1).ok());
  const Place place = disk.present.at(1);
  disk.world.files.begin()->second[kRecordPage + kShape.BlockAt(1, 2)] ^= 1;
  AlignedBuffer buffer(kShape.PayloadBytes());
  BlobRead read{.place = place,
                .shape = kShape,
                .first = 0,
                .count = 4,
                .sections = 1,
                .last = TestKey(1003),
                .into = buffer.span()};
  auto id = disk.log->Read(read);
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(Await(disk.log.get(), *id, &disk.events).status.ok());
  EXPECT_TRUE(HasBytesOf(1, read));
  read.sections = 2;
  id = disk.log->Read(read);
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(ReasonOf(Await(disk.log.get(), *id, &disk.events).status), Reason::kCorrupt);
  EXPECT_EQ(disk.log->stats().damaged, 1u);
}

TEST(SegmentLog, AFullDiskIsAnAnswerAndPasses) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  disk.world.space = kSegmentBytes + 64 * kKiB;
  size_t put = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const absl::Status status = disk.Put(seed);
    put += status.ok() ? 1 : 0;
    if (!status.ok()) {
      ASSERT_EQ(ReasonOf(status), Reason::kNoCapacity);
    }
  }
  EXPECT_GT(put, 3u);
  EXPECT_LT(put, 30u);
  EXPECT_EQ(disk.ReadAll(), put);
  disk.world.space = UINT64_MAX;
  size_t later = 0;
  for (uint64_t seed = 31; seed <= 90; ++seed) later += disk.Put(seed).ok() ? 1 : 0;
  EXPECT_GT(later, 20u);
  EXPECT_GT(ReachedCount("segment log: no space for a segment"), 0u);
}

TEST(SegmentLog, FailedAndShortWritesAreNeverPublished) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  int writes = 0;
  disk.world.outcome = [&](const IoRequest& request, int64_t bytes) -> int64_t {
    const bool append = request.kind == IoRequest::Kind::kWrite && request.part_count == 2;
    if (!append) return bytes;  // reads and footers
    ++writes;
    return writes % 3 == 0 ? -EIO : writes % 3 == 1 ? bytes - 4096 : bytes;
  };
  for (uint64_t seed = 1; seed <= 9; ++seed) EXPECT_EQ(disk.Put(seed).ok(), seed % 3 == 2);
  EXPECT_EQ(disk.ReadAll(), 3u);
  EXPECT_FALSE(disk.log->stats().writes_off);
  disk.world.outcome = [](const IoRequest& request, int64_t bytes) -> int64_t {
    return request.kind == IoRequest::Kind::kWrite ? -EIO : bytes;
  };
  for (uint64_t seed = 10; seed <= 30; ++seed) EXPECT_FALSE(disk.Put(seed).ok());
  EXPECT_TRUE(disk.log->stats().writes_off);
  EXPECT_EQ(disk.ReadAll(), 3u);  // reads go on
  disk.world.outcome = [](const IoRequest&, int64_t) -> int64_t { return -EIO; };
  EXPECT_EQ(disk.ReadAll(), 0u);
  disk.world.outcome = nullptr;
  disk.log.reset();
  ASSERT_TRUE(disk.Open().ok());
  disk.ReadAll();
}

TEST(SegmentLog, AFolderThatWasRemovedIsAllMisses) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  for (uint64_t seed = 1; seed <= 8; ++seed) ASSERT_TRUE(disk.Put(seed).ok());
  disk.world.gone = true;
  EXPECT_EQ(disk.ReadAll(), 0u);
  for (uint64_t seed = 10; seed <= 30; ++seed) EXPECT_FALSE(disk.Put(seed).ok());
  DomainId domain{};
  EXPECT_FALSE(disk.log->EraseDomain(domain).ok());  // not durable, so not acknowledged
}

TEST(SegmentLog, AnErasedDomainStaysErasedWhateverHappens) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  for (uint64_t seed = 1; seed <= 12; ++seed)
    ASSERT_TRUE(disk.Put(seed, seed % 2 == 0 ? 7 : 8).ok());
  const std::map<uint64_t, Place> before = disk.present;
  // One more of the domain is being written when the domain is erased.
  const TestRecord record = MakeTestRecord(14, kShape, 7);
  const auto late = disk.log->Append(record.header, record.payload.span(), 14);
  ASSERT_TRUE(late.ok());
  DomainId domain{};
  domain[0] = 7;
  ASSERT_TRUE(disk.log->EraseDomain(domain).ok());
  const size_t acknowledged = disk.world.journal.size();
  EXPECT_FALSE(Await(disk.log.get(), *late, &disk.events).status.ok());
  for (const auto& [seed, place] : before)
    EXPECT_EQ(disk.Get(seed, place).ok(), seed % 2 == 1) << seed;
  disk.log.reset();
  for (size_t changes = acknowledged; changes <= disk.world.journal.size(); ++changes) {
    Disk after;
    after.world.files = MemDirectory::After(disk.world.journal, changes, UINT64_MAX);
    ASSERT_TRUE(after.Open().ok());
    for (const auto& [seed, place] : after.present)
      ASSERT_EQ(seed % 2, 1u) << "after change " << changes;
    ASSERT_EQ(after.ReadAll(), 6u);
  }
}

TEST(SegmentLog, KeepsWhatIsReadWithinItsBudget) {
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    disk.Put(seed).IgnoreError();
    if (disk.present.contains(1)) {
      EXPECT_TRUE(disk.Get(1, disk.present.at(1)).ok());
    }
  }
  EXPECT_TRUE(disk.present.contains(1));
  EXPECT_FALSE(disk.present.contains(2));
  const BlobStats stats = disk.log->stats();
  EXPECT_GT(stats.moved_bytes, 0u);
  EXPECT_LE(stats.moved_bytes, stats.written_bytes / 4);
  EXPECT_LE(stats.held_bytes, kSmall.capacity_bytes);
}

TEST(SegmentLog, ReadsDoNotWaitForWrites) {
  const TestRecord record = MakeTestRecord(2, kShape);  // until the log has written it
  Disk disk;
  ASSERT_TRUE(disk.Open().ok());
  ASSERT_TRUE(disk.Put(1).ok());
  size_t posted = 0;
  absl::Status refused;
  while (refused.ok()) {
    refused = disk.log->Append(record.header, record.payload.span(), 2).status();
    posted += refused.ok() ? 1 : 0;
    ASSERT_LT(posted, 100u);
  }
  EXPECT_GT(posted, 10u);
  EXPECT_TRUE(disk.Get(1, disk.present.at(1)).ok());
}

TEST(SegmentLog, OneProcessHasTheFolder) {
  const std::string path = testing::TempDir() + "/weir-lock-" + std::to_string(getpid());
  auto first = OpenDirectory(path, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(ReasonOf(OpenDirectory(path, {}).status()), Reason::kNoCapacity);
  first->reset();
  EXPECT_TRUE(OpenDirectory(path, {}).ok());
  std::filesystem::remove_all(path);
}

TEST(SegmentLog, RealFilesSurviveARestartAndForeignFilesAreLeftAlone) {
  const std::string path = testing::TempDir() + "/weir-restart-" + std::to_string(getpid());
  std::map<uint64_t, Place> found;
  const auto open = [&] {
    found.clear();
    return SegmentLog::Open(*OpenDirectory(path, {}), kSmall, [&](const FoundRecord& record) {
      const uint64_t seed = Disk::SeedOf(record.last);
      found[seed] = record.place;
      return static_cast<BlobTag>(seed);
    });
  };
  Disk disk;
  disk.log = *open();
  std::filesystem::create_directory(path + "/seg-folder");
  for (uint64_t seed = 1; seed <= 15; ++seed) ASSERT_TRUE(disk.Put(seed).ok());
  disk.log.reset();
  disk.log = *open();
  disk.present = found;
  EXPECT_EQ(disk.ReadAll(), 15u);
  disk.log.reset();
  EXPECT_TRUE(std::filesystem::exists(path + "/seg-folder"));
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace weir::kv
