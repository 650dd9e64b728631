// SPDX-License-Identifier: Apache-2.0
//
// KvMemory: where the pages of one engine lie. It owns nothing; whoever made the arena keeps it
// alive longer than every model and transfer that uses it. The pointers are device pointers on a
// device backend: only backends and transfers follow them, never a core. Several engines of one
// process may share one KvMemory and divide its page ids between their pools.
#pragma once

#include <cstddef>

#include "base/stdx/ids.h"
#include "engine/cache/cache_layout.h"

namespace weir::engine {

struct KvMemory {
  std::byte* part_base[kPartCount] = {nullptr, nullptr};
  size_t page_bytes[kPartCount] = {0, 0};
  PageId page_count[kPartCount] = {0, 0};
  std::byte* state_base = nullptr;
  size_t state_bytes = 0;
  PageId state_count = 0;

  std::byte* Page(Part part, PageId page) const {
    return part_base[static_cast<int>(part)] +
           static_cast<size_t>(page) * page_bytes[static_cast<int>(part)];
  }
  std::byte* State(PageId page) const {
    return state_base + static_cast<size_t>(page) * state_bytes;
  }
};

}  // namespace weir::engine
