// SPDX-License-Identifier: Apache-2.0
//
// The other process of transfer_process_test. `transfer_peer own MIB` owns one region (id 1) of
// patterned memory (seed 1) and lets it be read until its standard input ends; it prints one
// descriptor a line in hexadecimal, then an empty line. `transfer_peer read HEX` reads from that
// region over the network without end and prints an empty line when the first read has landed.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/stdx/hash.h"
#include "base/stdx/units.h"
#include "kvstore/transfer/route_transfer.h"
#include "kvstore/transfer/shm_carrier.h"
#include "kvstore/transfer/test_pattern.h"
#include "kvstore/transfer/test_waker.h"
#include "kvstore/transfer/ucx_carrier.h"

namespace weir::kv {
namespace {

int Own(uint64_t bytes) {
  auto arena = Arena::CreateShared(bytes);
  auto ucx = MakeUcxCarrier({.ping_misses_max = 50});
  if (!arena.ok() || !ucx.ok()) return 1;
  FillPattern(1, {(*arena)->data(), (*arena)->bytes()});
  std::vector<std::unique_ptr<Carrier>> carriers;
  carriers.push_back(MakeShmCarrier());
  carriers.push_back(*std::move(ucx));
  RouteTransfer transfer({.self = InstanceId(1)}, std::move(carriers));
  if (!transfer.AddRegion(1, arena->get()).ok()) return 1;
  for (const std::string& descriptor : transfer.Descriptors()) {
    const std::string hex =
        HexOf({reinterpret_cast<const uint8_t*>(descriptor.data()), descriptor.size()});
    std::printf("%s\n", hex.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
  char sink;
  while (read(STDIN_FILENO, &sink, 1) > 0) {
  }
  return 0;
}

int Read(const std::string& hex) {
  std::string descriptor;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    descriptor += static_cast<char>(std::strtoul(hex.substr(at, 2).c_str(), nullptr, 16));
  }
  Waker waker;
  auto arena = Arena::CreatePrivate(8 * kMiB);
  auto ucx = MakeUcxCarrier({.ping_misses_max = 50});
  if (!arena.ok() || !ucx.ok()) return 1;
  std::vector<std::unique_ptr<Carrier>> carriers;
  carriers.push_back(*std::move(ucx));
  RouteTransfer transfer({.self = InstanceId(3), .wake = waker.Hook()}, std::move(carriers));
  if (!transfer.AddRegion(1, arena->get()).ok()) return 1;
  if (!transfer.AddRemote(InstanceId(1), std::vector{descriptor}).ok()) return 1;
  const CopyOp op{.from = InstanceId(1), .remote_region = 1, .local_region = 1, .bytes = 8 << 20};
  for (bool first = true;; first = false) {
    for (int i = 0; i < 2; ++i) {
      if (!transfer.Post({&op, 1}, Traffic::kHit).ok()) return 1;
    }
    for (const Completion& done : waker.Await(&transfer, 2)) {
      if (!done.status.ok()) return 1;
    }
    if (first) std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace weir::kv

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string mode = argv[1];
  if (mode == "own") return weir::kv::Own(std::strtoull(argv[2], nullptr, 10) * weir::kMiB);
  return mode == "read" ? weir::kv::Read(argv[2]) : 2;
}
