// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "kvstore/transfer/mem_carrier.h"
#include "kvstore/transfer/shm_carrier.h"
#include "kvstore/transfer/transfer_suite.h"

namespace weir::kv {
namespace {

struct MemWay {
  static constexpr RegionKind kKind = RegionKind::kMem;
  MemFabric fabric;
  std::unique_ptr<Carrier> Make() { return MakeMemCarrier(&fabric); }
};
struct ShmWay {
  static constexpr RegionKind kKind = RegionKind::kShm;
  std::unique_ptr<Carrier> Make() { return MakeShmCarrier(); }
};

using LocalWays = ::testing::Types<MemWay, ShmWay>;
INSTANTIATE_TYPED_TEST_SUITE_P(Local, TransferSuite, LocalWays);

TEST(MemTransfer, APeerThatIsGoneFailsItsReads) {
  MemWay way;
  auto owner = std::make_unique<Instance>(1, way.Make());
  Instance reader(2, way.Make());
  ASSERT_TRUE(reader.transfer->AddRemote(InstanceId(1), owner->transfer->Descriptors()).ok());
  const CopyOp op{.from = InstanceId(1), .remote_region = 1, .local_region = 1, .bytes = 100};
  ASSERT_TRUE(reader.transfer->Post({&op, 1}, Traffic::kHit).ok());
  owner.reset();
  auto done = reader.waker.Await(reader.transfer.get(), 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(ReasonOf(done[0].status), Reason::kPeerLost);
}

TEST(Route, PrefersTheFirstWayThatWorksAndFallsBackPerRegion) {
  MemFabric fabric;
  auto both = [&] {
    std::vector<std::unique_ptr<Carrier>> carriers;
    carriers.push_back(MakeShmCarrier());
    carriers.push_back(MakeMemCarrier(&fabric));
    return carriers;
  };
  auto shared = *Arena::CreateShared(1 << 20);
  auto hidden = *Arena::CreatePrivate(1 << 20);
  FillPattern(1, {shared->data(), shared->bytes()});
  FillPattern(2, {hidden->data(), hidden->bytes()});
  RouteTransfer owner({.self = InstanceId(1)}, both());
  ASSERT_TRUE(owner.AddRegion(1, shared.get()).ok());
  ASSERT_TRUE(owner.AddRegion(2, hidden.get()).ok());
  EXPECT_EQ(ReasonOf(owner.AddRegion(2, hidden.get())), Reason::kBadField);
  EXPECT_EQ(owner.Descriptors().size(), 3u);

  Waker waker;
  auto pages = *Arena::CreatePrivate(1 << 20);
  RouteTransfer reader({.self = InstanceId(2), .wake = waker.Hook()}, both());
  ASSERT_TRUE(reader.AddRegion(7, pages.get()).ok());
  ASSERT_EQ(reader.AddRemote(InstanceId(1), owner.Descriptors()), absl::OkStatus());
  EXPECT_EQ(*reader.KindOf(InstanceId(1), 1), RegionKind::kShm);
  EXPECT_EQ(*reader.KindOf(InstanceId(1), 2), RegionKind::kMem);
  const std::vector<CopyOp> ops = {
      {.from = InstanceId(1), .remote_region = 1, .local_region = 7, .bytes = 5000},
      {.from = InstanceId(1), .remote_region = 2, .remote_offset = 9, .local_region = 7,
       .local_offset = 5000, .bytes = 6000}};
  ASSERT_TRUE(reader.Post(ops, Traffic::kHit).ok());
  auto done = waker.Await(&reader, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, absl::OkStatus());
  EXPECT_TRUE(HasPattern(1, 0, {pages->data(), 5000}));
  EXPECT_TRUE(HasPattern(2, 9, {pages->data() + 5000, 6000}));
  EXPECT_EQ(reader.Stats().bytes_shm, 5000u);
  EXPECT_EQ(reader.Stats().bytes_mem, 6000u);

  // Of another boot of the host: shared memory is out of reach, the other way is taken.
  std::vector<std::string> far;
  for (const std::string& bytes : owner.Descriptors()) {
    RegionDescriptor descriptor = *ParseRegionDescriptor(bytes);
    descriptor.boot[3] ^= 1;
    if (descriptor.kind == RegionKind::kShm) far.push_back(Serialise(descriptor));
  }
  EXPECT_EQ(ReasonOf(reader.AddRemote(InstanceId(3), far)), Reason::kPeerLost);
}

TEST(Arena, PeersCanOnlyReadAndOnlyTheArenaMeant) {
  auto arena = *Arena::CreateShared(10000);
  arena->data()[9999] = std::byte{42};
  RegionDescriptor descriptor = DescribeShared(4, *arena);
  auto view = ArenaView::Map(descriptor);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ((*view)->bytes(), 10000u);
  EXPECT_EQ((*view)->data()[9999], std::byte{42});

  const std::string path = "/proc/self/fd/" + std::to_string(arena->fd());
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0) {
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_EQ(write(fd, "x", 1), -1);
    EXPECT_NE(ftruncate(fd, 4096), 0) << "a reader of a shortened file would fault";
    close(fd);
  }

  auto other = *Arena::CreateShared(10000);
  RegionDescriptor recycled = descriptor;
  recycled.fd = static_cast<uint32_t>(other->fd());
  EXPECT_EQ(ParamOf(ArenaView::Map(recycled).status()), "regions.token");
  recycled.fd = 0;
  EXPECT_EQ(ParamOf(ArenaView::Map(recycled).status()), "regions.fd");
  recycled = descriptor;
  recycled.bytes = 20000;
  EXPECT_EQ(ParamOf(ArenaView::Map(recycled).status()), "regions.bytes");
  recycled.bytes = 9999;
  EXPECT_EQ(ParamOf(ArenaView::Map(recycled).status()), "regions.token");

  // The view outlives the arena.
  auto kept = *std::move(view);
  arena.reset();
  EXPECT_EQ(kept->data()[9999], std::byte{42});
}

TEST(RegionDescriptor, SurvivesTheWireWhole) {
  RegionDescriptor descriptor;
  descriptor.kind = RegionKind::kUcx;
  descriptor.region = 3;
  descriptor.bytes = 1234567;
  descriptor.token = MakeRegionToken();
  descriptor.boot = MakeRegionToken();
  descriptor.pid = 5;
  descriptor.fd = 6;
  descriptor.host = "2001:db8::1";
  descriptor.port = 7777;
  auto parsed = ParseRegionDescriptor(Serialise(descriptor));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, descriptor);
  EXPECT_FALSE(ParseRegionDescriptor(Serialise(descriptor) + "x").ok());
}

}  // namespace
}  // namespace weir::kv
