// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/sim_memory.h"

#include "base/stdx/random.h"

namespace weir::sim {

SimMemory::SimMemory(const engine::CacheLayout& layout, uint32_t blocks, uint32_t states,
                     uint64_t seed) {
  for (int part = 0; part < engine::kPartCount; ++part) {
    kv_.page_bytes[part] = layout.page_bytes(static_cast<engine::Part>(part));
    kv_.page_count[part] = kv_.page_bytes[part] > 0 ? static_cast<PageId>(blocks) : 0;
    words_[part].resize(kv_.page_bytes[part] * blocks / sizeof(uint64_t));
    kv_.part_base[part] = reinterpret_cast<std::byte*>(words_[part].data());
  }
  kv_.state_bytes = layout.state_bytes();
  kv_.state_count = kv_.state_bytes > 0 ? static_cast<PageId>(states) : 0;
  words_[2].resize(kv_.state_bytes * states / sizeof(uint64_t));
  kv_.state_base = reinterpret_cast<std::byte*>(words_[2].data());
  uint64_t noise = Mix64(seed + 1);
  for (auto& words : words_) {
    for (uint64_t& word : words) word = noise = noise * 6364136223846793005ULL + 1442695040888963407ULL;
  }
}

}  // namespace weir::sim
