// SPDX-License-Identifier: Apache-2.0
//
// What a token costs a router, in CPU time: from the bytes of an engine's message through journal,
// state machine and stream parser to the bytes of a server-sent event. Runs on the calling thread
// alone, without sockets; takes seconds. Used by `weir bench router`.
#pragma once

#include <cstdint>

#include "base/stdx/status.h"

namespace weir::router {

struct RouterBenchOptions {
  uint32_t streams = 64;
  uint32_t events_per_stream = 2000;
  uint32_t tokens_per_event = 1;  // ids of one stream in one message
};

struct RouterBenchResult {
  double us_per_token = 0;
  uint64_t tokens = 0;
  uint64_t bytes_written = 0;
};

absl::StatusOr<RouterBenchResult> BenchRouter(const RouterBenchOptions& options);

}  // namespace weir::router
