// SPDX-License-Identifier: Apache-2.0
//
// MeasureTransfer: how fast one instance reads from another through given carriers. Both live in the
// calling process, each with its carrier's own thread, so that one call gives a number without any
// set-up. Blocks for about `seconds` per size. Fails where a carrier cannot reach the other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/transfer/carrier.h"

namespace weir::kv {

struct TransferRate {
  uint32_t bytes = 0;        // of one read
  double gb_per_second = 0;  // 10^9 bytes
  double latency_us = 0;     // of one read alone, median
  // Of the whole process, both ends together, per 10^9 bytes: unlike the rate it can be compared on a
  // machine that does other things too.
  double cpu_seconds_per_gb = 0;
};

struct TransferBenchOptions {
  std::vector<uint32_t> sizes = {64u << 10, 256u << 10, 1u << 20, 4u << 20};
  double seconds = 0.3;     // per size
  uint32_t reads_under_way = 16;
  bool checksum = false;
  uint64_t arena_bytes = 128u << 20;  // larger than caches
};

absl::StatusOr<std::vector<TransferRate>> MeasureTransfer(std::unique_ptr<Carrier> owner,
                                                          std::unique_ptr<Carrier> reader,
                                                          const TransferBenchOptions& options);

}  // namespace weir::kv
