// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/check.h"
#include "kvstore/transfer/shm_carrier.h"
#include "kvstore/transfer/transfer_bench.h"
#include "kvstore/transfer/transfer_suite.h"
#include "kvstore/transfer/ucx_carrier.h"
#include "kvstore/transfer/ucx_context.h"

namespace weir::kv {
namespace {

struct UcxWay {
  static constexpr RegionKind kKind = RegionKind::kUcx;
  std::unique_ptr<Carrier> Make() {
    // Patient, since test machines may not give the other thread a turn for a second.
    auto carrier = MakeUcxCarrier({.ping_misses_max = 50});
    EXPECT_TRUE(carrier.ok()) << carrier.status();
    return *std::move(carrier);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, TransferSuite, UcxWay);

TEST(UcxTransfer, AWrongTokenReadsNothing) {
  UcxWay way;
  Instance owner(1, way.Make());
  Instance reader(2, way.Make());
  std::fill_n(owner.big->data(), owner.big->bytes(), std::byte{7});
  RegionDescriptor descriptor = *ParseRegionDescriptor(owner.transfer->Descriptors()[0]);
  descriptor.token[15] ^= 1;
  const std::vector<std::string> guessed = {Serialise(descriptor)};
  ASSERT_EQ(reader.transfer->AddRemote(InstanceId(1), guessed), absl::OkStatus());
  const CopyOp op{.from = InstanceId(1), .remote_region = descriptor.region, .local_region = 1,
                  .bytes = 4096};
  ASSERT_TRUE(reader.transfer->Post({&op, 1}, Traffic::kHit).ok());
  const auto done = reader.waker.Await(reader.transfer.get(), 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(ReasonOf(done[0].status), Reason::kForbidden);
  EXPECT_EQ(reader.big->data()[0], std::byte{0});
}

TEST(UcxTransfer, MalformedMessagesEndTheirSenderOnly) {
  UcxWay way;
  Instance owner(1, way.Make());
  Instance reader(2, way.Make());
  const auto descriptors = owner.transfer->Descriptors();
  ASSERT_EQ(reader.transfer->AddRemote(InstanceId(1), descriptors), absl::OkStatus());
  {
    auto ucx = *UcxContext::Create({});
    const auto descriptor = *ParseRegionDescriptor(descriptors[0]);
    auto rogue = *ucx->Connect(*MakeSocketAddress(descriptor.host, descriptor.port));
    const std::vector<std::byte> junk(97, std::byte{0x5a});
    int sent = 0;
    for (const size_t bytes : {size_t{1}, sizeof(UcxReadRequest) - 1, junk.size()}) {
      for (const auto id : {UcxMessage::kPing, UcxMessage::kRead, UcxMessage::kData}) {
        ucx->Send(*rogue, id, std::span(junk).first(bytes), {}, [&](bool) { ++sent; });
      }
    }
    const uint64_t before = ReachedCount("ucx: a reader's request is malformed");
    for (int turn = 0; turn < 2000; ++turn) {
      if (sent == 9 && ReachedCount("ucx: a reader's request is malformed") > before) break;
      if (ucx->Progress() == 0) ucx->Sleep(-1, Millis(5));
    }
    EXPECT_GT(ReachedCount("ucx: a reader's request is malformed"), before);
    ucx->Close(std::move(rogue), {});
  }
  const CopyOp op{.from = InstanceId(1), .remote_region = 1, .local_region = 1, .bytes = 1 << 20};
  ASSERT_TRUE(reader.transfer->Post({&op, 1}, Traffic::kHit).ok());
  const auto done = reader.waker.Await(reader.transfer.get(), 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, absl::OkStatus());
}

TEST(UcxTransfer, OptionsThatCannotWorkAreRefused) {
  EXPECT_EQ(ReasonOf(MakeUcxCarrier({.listen_host = "localhost"}).status()), Reason::kBadField);
  EXPECT_EQ(ReasonOf(MakeUcxCarrier({.window = 0}).status()), Reason::kBadField);
  EXPECT_FALSE(MakeUcxCarrier({.devices = "no_such_device"}).ok());
}

TEST(TransferBench, GivesARateForEverySize) {
  UcxWay way;
  const TransferBenchOptions options{.sizes = {4096, 1 << 20}, .seconds = 0.01, .checksum = true,
                                     .arena_bytes = 4 << 20};
  for (const auto& rates : {MeasureTransfer(MakeShmCarrier(), MakeShmCarrier(), options),
                            MeasureTransfer(way.Make(), way.Make(), options)}) {
    ASSERT_TRUE(rates.ok()) << rates.status();
    ASSERT_EQ(rates->size(), 2u);
    EXPECT_GT((*rates)[1].gb_per_second, 0);
  }
}

}  // namespace
}  // namespace weir::kv
