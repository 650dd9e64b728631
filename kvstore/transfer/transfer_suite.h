// SPDX-License-Identifier: Apache-2.0
//
// The one suite that every way of transferring passes. A `Way` is a test type that makes carriers of
// one kind for the instances of one test: `static constexpr RegionKind kKind` and
// `std::unique_ptr<Carrier> Make()`. Tests wait on the wake hook, never on time.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/stdx/hash.h"
#include "base/stdx/random.h"
#include "base/stdx/status.h"
#include "base/stdx/units.h"
#include "gtest/gtest.h"
#include "kvstore/transfer/arena.h"
#include "kvstore/transfer/route_transfer.h"
#include "kvstore/transfer/test_pattern.h"
#include "kvstore/transfer/test_waker.h"

namespace weir::kv {

// One process's memory and Transfer, with one carrier. Region 1 is 8 MiB, region 2 is 64 KiB.
struct Instance {
  Waker waker;
  std::unique_ptr<Arena> big;
  std::unique_ptr<Arena> small;
  std::unique_ptr<RouteTransfer> transfer;

  Instance(uint64_t id, std::unique_ptr<Carrier> carrier, TransferLimits limits = {}) {
    big = *Arena::CreateShared(8 * kMiB);
    small = *Arena::CreateShared(64 * kKiB);
    std::vector<std::unique_ptr<Carrier>> carriers;
    carriers.push_back(std::move(carrier));
    transfer = std::make_unique<RouteTransfer>(
        TransferOptions{.self = InstanceId(id), .limits = limits, .wake = waker.Hook()},
        std::move(carriers));
    EXPECT_TRUE(transfer->AddRegion(1, big.get()).ok());
    EXPECT_TRUE(transfer->AddRegion(2, small.get()).ok());
  }

  std::span<const std::byte> At(uint64_t offset, uint64_t bytes) const {
    return {big->data() + offset, bytes};
  }
};

template <class Way>
class TransferSuite : public ::testing::Test {
 protected:
  TransferSuite() {
    owner_ = std::make_unique<Instance>(1, way_.Make());
    reader_ = std::make_unique<Instance>(2, way_.Make());
    FillPattern(1, {owner_->big->data(), owner_->big->bytes()});
    FillPattern(2, {owner_->small->data(), owner_->small->bytes()});
    descriptors_ = owner_->transfer->Descriptors();
    EXPECT_EQ(reader_->transfer->AddRemote(kOwner, descriptors_), absl::OkStatus());
  }

  static CopyOp Read(uint64_t remote_offset, uint64_t local_offset, uint32_t bytes) {
    return {.from = kOwner, .remote_region = 1, .remote_offset = remote_offset, .local_region = 1,
            .local_offset = local_offset, .bytes = bytes};
  }
  static CopyOp Checked(CopyOp op) {
    std::vector<std::byte> expected(op.bytes);
    for (uint32_t i = 0; i < op.bytes; ++i) {
      expected[i] = PatternAt(op.remote_region, op.remote_offset + i);
    }
    op.crc32c = Crc32c(expected);
    return op;
  }
  TransferId Post(std::vector<CopyOp> ops) {
    auto id = reader_->transfer->Post(ops, Traffic::kHandover);
    EXPECT_EQ(id.status(), absl::OkStatus());
    return id.ok() ? *id : TransferId();
  }
  Completion One() {
    auto done = reader_->waker.Await(reader_->transfer.get(), 1);
    EXPECT_EQ(done.size(), 1u);
    return done.empty() ? Completion{TransferId(), Error(Reason::kBug, "nothing came")} : done[0];
  }

  static constexpr InstanceId kOwner{1};
  Way way_;
  std::unique_ptr<Instance> owner_;
  std::unique_ptr<Instance> reader_;
  std::vector<std::string> descriptors_;
};

TYPED_TEST_SUITE_P(TransferSuite);

TYPED_TEST_P(TransferSuite, BytesLandRightInEverySize) {
  uint64_t offset = 3;
  for (uint32_t bytes : {1u, 7u, 4096u, 65536u, 65537u, 1000003u, 4u << 20, (4u << 20) + 5}) {
    const TransferId id = this->Post({this->Checked(this->Read(offset, 17, bytes))});
    const Completion done = this->One();
    EXPECT_EQ(done.id, id);
    EXPECT_EQ(done.status, absl::OkStatus()) << bytes;
    EXPECT_TRUE(HasPattern(1, offset, this->reader_->At(17, bytes))) << bytes;
    EXPECT_EQ(this->reader_->big->data()[16], std::byte{0});
    EXPECT_EQ(this->reader_->big->data()[17 + bytes], std::byte{0});
    std::fill_n(this->reader_->big->data(), this->reader_->big->bytes(), std::byte{0});
    offset += 1001;
  }
  EXPECT_EQ(*this->reader_->transfer->KindOf(this->kOwner, 1), TypeParam::kKind);
}

TYPED_TEST_P(TransferSuite, ManyAtOnceEachCompleteOnce) {
  Random random(5);
  std::map<uint64_t, std::vector<CopyOp>> posted;
  constexpr uint32_t kPage = 16384;
  uint64_t page = 0;
  while (page + 8 < this->reader_->big->bytes() / kPage) {
    std::vector<CopyOp> ops;
    for (uint64_t n = 1 + random.Below(4); n > 0; --n) {
      const uint64_t from = random.Below(this->owner_->big->bytes() / kPage);
      ops.push_back(this->Checked(this->Read(from * kPage, page++ * kPage, kPage)));
    }
    const auto traffic = static_cast<Traffic>(random.Below(kTrafficCount));
    auto id = this->reader_->transfer->Post(ops, traffic);
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(posted.emplace(id->value, std::move(ops)).second);
  }
  const auto done = this->reader_->waker.Await(this->reader_->transfer.get(), posted.size());
  ASSERT_EQ(done.size(), posted.size());
  for (const Completion& completion : done) {
    EXPECT_EQ(completion.status, absl::OkStatus());
    for (const CopyOp& op : posted[completion.id.value]) {
      EXPECT_TRUE(HasPattern(1, op.remote_offset, this->reader_->At(op.local_offset, op.bytes)));
    }
    EXPECT_EQ(posted.erase(completion.id.value), 1u);
  }
  const TransferStats stats = this->reader_->transfer->Stats();
  EXPECT_EQ(stats.outstanding, 0u);
  EXPECT_EQ(stats.completed, done.size());
  EXPECT_EQ(stats.bytes_mem + stats.bytes_shm + stats.bytes_ucx, page * kPage);
}

TYPED_TEST_P(TransferSuite, CancelledReadsCompleteAndWriteNoMoreAfterwards) {
  for (int round = 0; round < 10; ++round) {
    const TransferId kept = this->Post({this->Checked(this->Read(0, 4 * kMiB, 65536))});
    const TransferId dropped =
        this->Post({this->Read(0, 0, 1 << 20), this->Read(1 << 20, 1 << 20, 1 << 20)});
    this->reader_->transfer->Cancel(dropped);
    this->reader_->transfer->Cancel(dropped);
    auto done = this->reader_->waker.Await(this->reader_->transfer.get(), 2);
    ASSERT_EQ(done.size(), 2u);
    for (const Completion& completion : done) {
      EXPECT_EQ(ReasonOf(completion.status),
                completion.id == kept ? Reason::kOk : Reason::kCancelled);
    }
    // The pages belong to somebody else now (case D07): a late write would show.
    std::fill_n(this->reader_->big->data(), 2 * kMiB, std::byte{0xee});
    const TransferId next = this->Post({this->Checked(this->Read(5, 5 * kMiB, 300000))});
    EXPECT_EQ(this->One().id, next);
    const auto pages = this->reader_->At(0, 2 * kMiB);
    EXPECT_TRUE(std::ranges::all_of(pages, [](std::byte b) { return b == std::byte{0xee}; }));
    this->reader_->transfer->Cancel(next);  // completed: ignored
  }
}

TYPED_TEST_P(TransferSuite, ReadsOutsideOfRegionsAreRefusedWithTheField) {
  auto refused = [&](CopyOp op) {
    auto id = this->reader_->transfer->Post({&op, 1}, Traffic::kHit);
    EXPECT_EQ(ReasonOf(id.status()), Reason::kBadField);
    return ParamOf(id.status());
  };
  EXPECT_EQ(refused(this->Read(8 * kMiB - 10, 0, 11)), "remote_offset");
  EXPECT_EQ(refused(this->Read(UINT64_MAX - 5, 0, 11)), "remote_offset");
  EXPECT_EQ(refused(this->Read(0, 8 * kMiB - 10, 11)), "local_offset");
  EXPECT_EQ(refused(this->Read(0, UINT64_MAX, 11)), "local_offset");
  EXPECT_EQ(refused(this->Read(0, 0, 0)), "bytes");
  CopyOp op = this->Read(0, 0, 1);
  op.remote_region = 9;
  EXPECT_EQ(refused(op), "remote_region");
  op = this->Read(0, 0, 1);
  op.local_region = 9;
  EXPECT_EQ(refused(op), "local_region");
  op = this->Read(0, 0, 1);
  op.from = InstanceId(77);
  EXPECT_EQ(ReasonOf(this->reader_->transfer->Post({&op, 1}, Traffic::kHit).status()),
            Reason::kPeerLost);
  EXPECT_EQ(ReasonOf(this->reader_->transfer->Post({}, Traffic::kHit).status()), Reason::kBadField);
  EXPECT_EQ(this->reader_->transfer->Stats().posted, 0u);
}

TYPED_TEST_P(TransferSuite, ALiarAboutItsRegionIsFoundOut) {
  // A descriptor that claims more than there is: refused at once, or by the owner of the memory.
  std::vector<std::string> lies;
  for (const std::string& bytes : this->descriptors_) {
    RegionDescriptor descriptor = *ParseRegionDescriptor(bytes);
    descriptor.bytes *= 4;
    lies.push_back(Serialise(descriptor));
  }
  constexpr InstanceId kLiar{3};
  const absl::Status added = this->reader_->transfer->AddRemote(kLiar, lies);
  if (!added.ok()) return;
  CopyOp op = this->Read(9 * kMiB, 0, 100);
  op.from = kLiar;
  this->Post({op});
  const Completion done = this->One();
  EXPECT_EQ(ReasonOf(done.status), Reason::kBadField) << done.status;
  // The same peer's honest reads are not hurt by it.
  op.remote_offset = 0;
  this->Post({op});
  EXPECT_EQ(this->One().status, absl::OkStatus());
}

TYPED_TEST_P(TransferSuite, MangledDescriptorsAreRefused) {
  constexpr InstanceId kNew{3};
  for (size_t cut = 0; cut < this->descriptors_[0].size(); ++cut) {
    EXPECT_FALSE(
        this->reader_->transfer->AddRemote(kNew, std::vector{this->descriptors_[0].substr(0, cut)})
            .ok());
  }
  // Every flipped byte gives a refusal or a peer that cannot be read; nothing crashes.
  for (size_t at = 0; at < this->descriptors_[0].size(); ++at) {
    std::string bytes = this->descriptors_[0];
    bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
    (void)this->reader_->transfer->AddRemote(kNew, std::vector{bytes});
    this->reader_->transfer->RemoveRemote(kNew);
  }
}

TYPED_TEST_P(TransferSuite, WrongChecksumIsCorrupt) {
  CopyOp op = this->Checked(this->Read(100, 0, 100000));
  op.crc32c ^= 1;
  this->Post({op});
  EXPECT_EQ(ReasonOf(this->One().status), Reason::kCorrupt);
  // One bad read spoils its transfer; the others of it need not land.
  this->Post({this->Checked(this->Read(0, 0, 4096)), op, this->Read(0, 1 << 20, 1 << 20)});
  EXPECT_EQ(ReasonOf(this->One().status), Reason::kCorrupt);
}

TYPED_TEST_P(TransferSuite, RemovingAPeerFailsWhatIsOutstanding) {
  std::vector<TransferId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(this->Post({this->Read(0, i * kMiB, 1 << 20), this->Read(9, 5 * kMiB, 999)}));
  }
  this->reader_->transfer->RemoveRemote(this->kOwner);
  auto done = this->reader_->waker.Await(this->reader_->transfer.get(), ids.size());
  ASSERT_EQ(done.size(), ids.size());
  for (const Completion& completion : done) {
    EXPECT_EQ(ReasonOf(completion.status), Reason::kPeerLost);
  }
  CopyOp op = this->Read(0, 0, 1);
  EXPECT_EQ(ReasonOf(this->reader_->transfer->Post({&op, 1}, Traffic::kHit).status()),
            Reason::kPeerLost);
  // It may come back, and nothing of before disturbs it.
  ASSERT_EQ(this->reader_->transfer->AddRemote(this->kOwner, this->descriptors_),
            absl::OkStatus());
  this->Post({this->Checked(this->Read(77, 0, 50000))});
  EXPECT_EQ(this->One().status, absl::OkStatus());
}

TYPED_TEST_P(TransferSuite, AddingAPeerTwiceIsHarmlessWithTheSameRegionsOnly) {
  EXPECT_EQ(this->reader_->transfer->AddRemote(this->kOwner, this->descriptors_),
            absl::OkStatus());
  auto other = this->descriptors_;
  other.pop_back();
  EXPECT_EQ(ReasonOf(this->reader_->transfer->AddRemote(this->kOwner, other)), Reason::kBadField);
}

TYPED_TEST_P(TransferSuite, FullIsAnAnswer) {
  TransferLimits limits;
  limits.transfers_max = 2;
  limits.ops_max = 3;
  Instance small(5, this->way_.Make(), limits);
  ASSERT_EQ(small.transfer->AddRemote(this->kOwner, this->descriptors_), absl::OkStatus());
  const CopyOp op = this->Read(0, 0, 4096);
  const std::vector<CopyOp> two(2, op);
  ASSERT_TRUE(small.transfer->Post(two, Traffic::kHit).ok());
  EXPECT_EQ(ReasonOf(small.transfer->Post(two, Traffic::kHit).status()), Reason::kQueueFull);
  ASSERT_TRUE(small.transfer->Post({&op, 1}, Traffic::kHit).ok());
  EXPECT_EQ(ReasonOf(small.transfer->Post({&op, 1}, Traffic::kHit).status()), Reason::kQueueFull);
  EXPECT_EQ(small.waker.Await(small.transfer.get(), 2).size(), 2u);
  EXPECT_TRUE(small.transfer->Post(two, Traffic::kHit).ok());
  EXPECT_EQ(small.waker.Await(small.transfer.get(), 1).size(), 1u);
}

TYPED_TEST_P(TransferSuite, DestroyedWithReadsUnderWay) {
  for (int i = 0; i < 8; ++i) this->Post({this->Read(0, i * kMiB, 1 << 20)});
  this->reader_->transfer.reset();
  std::fill_n(this->reader_->big->data(), this->reader_->big->bytes(), std::byte{0xee});
  const auto pages = this->reader_->At(0, this->reader_->big->bytes());
  EXPECT_TRUE(std::ranges::all_of(pages, [](std::byte b) { return b == std::byte{0xee}; }));
}

REGISTER_TYPED_TEST_SUITE_P(TransferSuite, BytesLandRightInEverySize, ManyAtOnceEachCompleteOnce,
                            CancelledReadsCompleteAndWriteNoMoreAfterwards,
                            ReadsOutsideOfRegionsAreRefusedWithTheField,
                            ALiarAboutItsRegionIsFoundOut, MangledDescriptorsAreRefused,
                            WrongChecksumIsCorrupt, RemovingAPeerFailsWhatIsOutstanding,
                            AddingAPeerTwiceIsHarmlessWithTheSameRegionsOnly, FullIsAnAnswer,
                            DestroyedWithReadsUnderWay);

}  // namespace weir::kv
