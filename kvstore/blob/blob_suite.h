// SPDX-License-Identifier: Apache-2.0
//
// What every BlobStore has to do, as one typed suite. A maker `T` is made anew for each test and
// has `BlobStore* store()` with room for `kRoomRecords` records of TestShape(4) or a little more.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "kvstore/blob/test_record.h"

namespace weir::kv {

template <class T>
class BlobSuite : public testing::Test {
 public:
  BlobStore& store() { return *maker_.store(); }

  absl::StatusOr<Place> Put(uint64_t seed, const RecordShape& shape = TestShape(4),
                            uint8_t domain = 0) {
    const TestRecord record = MakeTestRecord(seed, shape, domain);
    WEIR_ASSIGN(const BlobId id,
                store().Append(record.header, record.payload.span(), static_cast<BlobTag>(seed)));
    const BlobEvent event = Await(&store(), id, &events_);
    if (!event.status.ok()) return event.status;
    EXPECT_EQ(event.tag, seed);
    return event.place;
  }

  BlobRead Whole(uint64_t seed, Place place, const RecordShape& shape = TestShape(4)) {
    BlobRead read{.place = place,
                  .shape = shape,
                  .first = 0,
                  .count = shape.blocks,
                  .sections = (1u << shape.sections) - 1,
                  .last = TestKey(seed * 1000 + shape.blocks - 1)};
    buffer_ = AlignedBuffer(PlanRead(shape, 0, shape.blocks, read.sections).bytes);
    read.into = buffer_.span();
    return read;
  }

  absl::Status Get(const BlobRead& read) {
    WEIR_ASSIGN(const BlobId id, store().Read(read));
    return Await(&store(), id, &events_).status;
  }

 protected:
  T maker_;
  AlignedBuffer buffer_;
  std::vector<BlobEvent> events_;
};

TYPED_TEST_SUITE_P(BlobSuite);

TYPED_TEST_P(BlobSuite, GivesBackWhatWasPut) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const RecordShape shape = TestShape(static_cast<uint32_t>(seed));
    const auto place = this->Put(seed, shape);
    ASSERT_TRUE(place.ok()) << place.status();
    const BlobRead read = this->Whole(seed, *place, shape);
    EXPECT_TRUE(this->Get(read).ok());
    EXPECT_TRUE(HasBytesOf(seed, read));
  }
}

TYPED_TEST_P(BlobSuite, GivesAnyRangeOfBlocksAndSections) {
  const RecordShape shape = TestShape(8);
  const auto place = this->Put(3, shape);
  ASSERT_TRUE(place.ok()) << place.status();
  for (uint32_t first = 0; first < 8; ++first) {
    for (uint32_t count = 1; first + count <= 8; ++count) {
      for (uint32_t sections = 1; sections <= 3; ++sections) {
        BlobRead read = this->Whole(3, *place, shape);
        read.first = first;
        read.count = count;
        read.sections = sections;
        read.last = TestKey(3000 + first + count - 1);
        ASSERT_TRUE(this->Get(read).ok());
        ASSERT_TRUE(HasBytesOf(3, read)) << first << " " << count << " " << sections;
      }
    }
  }
}

TYPED_TEST_P(BlobSuite, AnotherRecordThanMeantIsAMiss) {
  const auto place = this->Put(1);
  ASSERT_TRUE(place.ok());
  BlobRead read = this->Whole(2, *place);
  EXPECT_EQ(ReasonOf(this->Get(read)), Reason::kUnknownModel);
  read = this->Whole(1, *place);
  read.place.page += 1;
  read.place.segment += 1;
  EXPECT_EQ(ReasonOf(this->Get(read)), Reason::kUnknownModel);
  read = this->Whole(1, *place, TestShape(3));
  EXPECT_FALSE(this->Get(read).ok());
}

TYPED_TEST_P(BlobSuite, RefusesWhatCannotBe) {
  TestRecord record = MakeTestRecord(1, TestShape(4));
  EXPECT_FALSE(this->store().Append(record.header, record.payload.span().first(4096), 0).ok());
  record.header.shape.blocks = 33;
  EXPECT_FALSE(this->store().Append(record.header, record.payload.span(), 0).ok());
  const auto place = this->Put(1);
  ASSERT_TRUE(place.ok());
  BlobRead read = this->Whole(1, *place);
  read.count = 5;
  EXPECT_EQ(ReasonOf(this->Get(read)), Reason::kBadField);
  read = this->Whole(1, *place);
  read.sections = 4;
  EXPECT_EQ(ReasonOf(this->Get(read)), Reason::kBadField);
  read = this->Whole(1, *place);
  read.into = read.into.first(4096);
  EXPECT_EQ(ReasonOf(this->Get(read)), Reason::kBadField);
}

TYPED_TEST_P(BlobSuite, DroppedAndErasedRecordsAreMisses) {
  const auto dropped = this->Put(1);
  const auto erased = this->Put(2, TestShape(4), 7);
  const auto kept = this->Put(3, TestShape(4), 8);
  ASSERT_TRUE(dropped.ok() && erased.ok() && kept.ok());
  this->store().Drop(*dropped);
  DomainId domain{};
  domain[0] = 7;
  ASSERT_TRUE(this->store().EraseDomain(domain).ok());
  EXPECT_FALSE(this->Get(this->Whole(1, *dropped)).ok());
  EXPECT_FALSE(this->Get(this->Whole(2, *erased)).ok());
  EXPECT_TRUE(this->Get(this->Whole(3, *kept)).ok());
  EXPECT_TRUE(this->Put(4, TestShape(4), 7).ok());  // the domain may be used again
}

TYPED_TEST_P(BlobSuite, ApproxRecordsAreNotForExactRequests) {
  TestRecord record = MakeTestRecord(5, TestShape(4));
  record.header.approx = true;
  const auto id = this->store().Append(record.header, record.payload.span(), 5);
  ASSERT_TRUE(id.ok());
  const Place place = Await(&this->store(), *id, &this->events_).place;
  BlobRead read = this->Whole(5, place);
  EXPECT_TRUE(this->Get(read).ok());
  read.exact = true;
  EXPECT_FALSE(this->Get(read).ok());
}

// Fills the store many times over: every record is there or was told to be gone, and what is there
// has its bytes. Records that are read again and again outlive those that are not.
TYPED_TEST_P(BlobSuite, EvictsAndSaysSo) {
  std::map<uint64_t, Place> present;
  const auto take = [&] {
    for (const BlobEvent& event : this->events_) {
      if (event.kind == BlobEvent::Kind::kGone) {
        ASSERT_EQ(present.erase(event.tag), 1u) << event.tag;
      }
      if (event.kind == BlobEvent::Kind::kMoved) present.at(event.tag) = event.place;
    }
    this->events_.clear();
  };
  size_t put = 0;
  for (uint64_t seed = 1; seed <= 8 * TypeParam::kRoomRecords; ++seed) {
    const auto place = this->Put(seed);
    take();
    if (!place.ok()) continue;
    ++put;
    present[seed] = *place;
    ASSERT_TRUE(this->Get(this->Whole(seed, *place)).ok());
    take();
  }
  EXPECT_GE(put, 6 * TypeParam::kRoomRecords);
  EXPECT_GE(present.size(), TypeParam::kRoomRecords / 3);
  EXPECT_GT(this->store().stats().evicted, 0u);
  EXPECT_EQ(this->store().stats().records, present.size());
  const std::map<uint64_t, Place> now = present;
  for (const auto& [seed, place] : now) {
    const BlobRead read = this->Whole(seed, place);
    const absl::Status status = this->Get(read);
    if (status.ok()) {
      EXPECT_TRUE(HasBytesOf(seed, read));
    } else {
      EXPECT_EQ(ReasonOf(status), Reason::kUnknownModel);  // gone while we looked
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(BlobSuite, GivesBackWhatWasPut, GivesAnyRangeOfBlocksAndSections,
                            AnotherRecordThanMeantIsAMiss, RefusesWhatCannotBe,
                            DroppedAndErasedRecordsAreMisses, ApproxRecordsAreNotForExactRequests,
                            EvictsAndSaysSo);

}  // namespace weir::kv
