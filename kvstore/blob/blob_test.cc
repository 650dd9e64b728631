// SPDX-License-Identifier: Apache-2.0
//
// The suite over the twin, over a folder in memory and over real files by both ways to a disk; and
// records as bytes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "kvstore/blob/blob_suite.h"
#include "kvstore/blob/mem_blob.h"
#include "kvstore/blob/mem_directory.h"
#include "kvstore/blob/segment_log.h"

namespace weir::kv {
namespace {

constexpr uint64_t kSegmentBytes = 256 * kKiB;  // 12 records of TestShape(4)
constexpr SegmentLogOptions kSmall = {.capacity_bytes = 6 * kSegmentBytes,
                                      .segment_bytes = kSegmentBytes};

class InMemory {
 public:
  static constexpr size_t kRoomRecords = 40;
  BlobStore* store() { return &blob_; }

 private:
  MemBlob blob_{kRoomRecords * TestShape(4).RecordBytes()};
};

class InMemoryFolder {
 public:
  static constexpr size_t kRoomRecords = 48;
  InMemoryFolder() {
    auto log = SegmentLog::Open(std::make_unique<MemDirectory>(&world_), kSmall,
                                [](const FoundRecord&) { return 0u; });
    EXPECT_TRUE(log.ok()) << log.status();
    store_ = *std::move(log);
  }
  BlobStore* store() { return store_.get(); }

 private:
  MemDirectory::World world_;
  std::unique_ptr<SegmentLog> store_;
};

template <DirectoryOptions::Engine kEngine>
class OnDisk {
 public:
  static constexpr size_t kRoomRecords = 48;
  OnDisk() {
    path_ = testing::TempDir() + "/weir-blob-" + std::to_string(getpid());
    auto folder = OpenDirectory(path_, {.engine = kEngine});
    EXPECT_TRUE(folder.ok()) << folder.status();
    auto log = SegmentLog::Open(*std::move(folder), kSmall, [](const FoundRecord&) { return 0u; });
    EXPECT_TRUE(log.ok()) << log.status();
    store_ = *std::move(log);
  }
  ~OnDisk() {
    store_.reset();
    std::filesystem::remove_all(path_);
  }
  BlobStore* store() { return store_.get(); }

 private:
  std::string path_;
  std::unique_ptr<SegmentLog> store_;
};

using Makers = testing::Types<InMemory, InMemoryFolder, OnDisk<DirectoryOptions::Engine::kBest>,
                              OnDisk<DirectoryOptions::Engine::kPlain>>;
INSTANTIATE_TYPED_TEST_SUITE_P(All, BlobSuite, Makers);

TEST(Record, HeaderSurvivesTheRoundTrip) {
  TestRecord record = MakeTestRecord(9, TestShape(32));
  record.header.stamp = {{1, 2, 3}, 4, 5};
  record.header.approx = true;
  std::array<std::byte, kRecordPage> page;
  EncodeHeader(record.header, page);
  const auto back = DecodeHeader(page);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->stamp, record.header.stamp);
  EXPECT_EQ(back->parent, record.header.parent);
  EXPECT_EQ(back->shape, record.header.shape);
  EXPECT_EQ(back->keys, record.header.keys);
  EXPECT_EQ(back->crc, record.header.crc);
  EXPECT_TRUE(back->approx);
}

TEST(Record, EveryFlippedBitOfAHeaderIsNoticed) {
  const TestRecord record = MakeTestRecord(9, TestShape(3));
  std::array<std::byte, kRecordPage> page;
  EncodeHeader(record.header, page);
  for (size_t bit = 0; bit < kRecordPage * 8; ++bit) {
    page[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_EQ(ReasonOf(DecodeHeader(page).status()), Reason::kCorrupt) << bit;
    page[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  EXPECT_FALSE(DecodeHeader(std::span(page).first(100)).ok());
}

TEST(Record, PaddingCarriesNothing) {
  TestRecord record = MakeTestRecord(9, TestShape(1));
  std::memset(record.payload.data(), 0x5a, record.payload.bytes());
  SealPayload(record.payload.span(), &record.header);
  for (uint64_t i = 1000; i < kRecordPage; ++i) ASSERT_EQ(record.payload.span()[i], std::byte{0});
}

}  // namespace
}  // namespace weir::kv
