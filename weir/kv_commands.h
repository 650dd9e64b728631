// SPDX-License-Identifier: Apache-2.0
//
// The store process and its measure, and what they take. Exit codes as in commands.h.
#pragma once

#include <cstdint>
#include <string>

namespace weir {

// A running store, measured from an engine's side; as `weir kv bench`.
struct KvNodeBenchArgs {
  std::string address;
  bool quick = false;
  bool json = false;
};
int RunKvNodeBench(const KvNodeBenchArgs& args);

struct KvStoreArgs {
  std::string role = "node";
  std::string listen;  // for engines of this host
  std::string admin = "127.0.0.1:0";
  uint64_t host_bytes = 1ull << 30;
  std::string dir;  // empty: no disk tier
  uint64_t disk_bytes = 0;
  uint64_t window_bytes = 0;  // of window states; 0: none are kept
  uint64_t state_bytes = 4ull << 20;
  uint32_t state_seconds = 300;
};
// The store of a host for its engines; returns after a clean drain.
int RunKvStore(const KvStoreArgs& args);

}  // namespace weir
