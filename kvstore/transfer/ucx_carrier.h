// SPDX-License-Identifier: Apache-2.0
//
// The carrier between hosts: UCX active messages over RDMA or TCP, always driven by the reader. One
// progress thread of the carrier owns every UCX object and everything that refers to a peer; the
// calls of the Transfer's thread only exchange values with it and never block. Arenas are borrowed.
// A reader sends small read requests; the owner of the memory checks token and bounds and answers
// with at most `piece_bytes`, by rendezvous straight into the reader's pages, `window` at a time.
//
// What goes wrong: UCX over TCP tells of a killed peer within milliseconds but of a cut link or a
// stopped process never, so both sides count their own pings; a silent peer's endpoint is closed and
// its reads end with kPeerLost. A link is tried again with back-off for as long as the peer is known;
// reads wait for it up to `connect_timeout`. An answer that stays away ends a link after
// `piece_timeout` though pings come, with kDeadline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/runtime/time.h"
#include "kvstore/transfer/carrier.h"

namespace weir::kv {

struct UcxOptions {
  // Handed to UCX. The defaults keep all traffic on this host: UCX left to itself would also offer
  // every other interface.
  std::string devices = "lo";
  std::string transports = "tcp";
  std::vector<std::pair<std::string, std::string>> settings;  // further names without "UCX_"

  std::string listen_host = "127.0.0.1";  // numeric
  uint16_t listen_port = 0;               // 0 = any free one
  std::string advertise_host;             // what peers connect to; empty = listen_host

  Duration ping_interval = Millis(200);
  uint32_t ping_misses_max = 5;
  Duration connect_timeout = Millis(5000);
  Duration piece_timeout = Millis(10000);
  Duration backoff_min = Millis(20);
  Duration backoff_max = Millis(2000);
  uint32_t piece_bytes = 4u << 20;
  uint32_t window = 4;        // read requests under way per peer
  uint32_t served_max = 1024;  // peers that read from us
};

// Opens the listener; fails with kNoCapacity or kBadField and what UCX says.
absl::StatusOr<std::unique_ptr<Carrier>> MakeUcxCarrier(UcxOptions options);

}  // namespace weir::kv
