// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/transfer_suite.h"
#include "kvstore/transfer/ucx_carrier.h"

namespace weir::kv {
namespace {

struct UcxWay {
  static constexpr RegionKind kKind = RegionKind::kUcx;
  std::unique_ptr<Carrier> Make() {
    auto carrier = MakeUcxCarrier({});
    EXPECT_TRUE(carrier.ok()) << carrier.status();
    return *std::move(carrier);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, TransferSuite, UcxWay);

}  // namespace
}  // namespace weir::kv
