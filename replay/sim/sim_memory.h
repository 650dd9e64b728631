// SPDX-License-Identifier: Apache-2.0
//
// SimMemory: the KV pages of one simulated host, filled with noise so that a page nobody wrote is
// never mistaken for a right one. Owns its bytes; one thread; must outlive engines and transfers of
// the host.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/kv_memory.h"

namespace weir::sim {

class SimMemory {
 public:
  SimMemory(const engine::CacheLayout& layout, uint32_t blocks, uint32_t states, uint64_t seed);
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  const engine::KvMemory& kv() const { return kv_; }

 private:
  std::vector<uint64_t> words_[3];
  engine::KvMemory kv_;
};

}  // namespace weir::sim
