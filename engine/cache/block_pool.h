// SPDX-License-Identifier: Apache-2.0
//
// BlockPool: the set of page ids that one engine owns of one part, each free or used. It counts and
// never touches memory. One thread (its core's) owns it; nothing blocks. Ids range over an arena
// that several pools may share: pages change owner by Disown here and Own there. Giving back a page
// that is not ours or not used is a bug and ends the process; ids that came over the wire are
// checked with `owns` and `InArena` first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/stdx/ids.h"

namespace weir::engine {

struct PageRange {
  PageId first = 0;
  PageId count = 0;
};

class BlockPool {
 public:
  BlockPool() = default;
  // Owns `range` of an arena of `arena_pages` ids.
  BlockPool(PageRange range, PageId arena_pages);

  uint32_t total() const { return total_; }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t used() const { return total_ - free(); }
  bool InArena(PageId page) const { return page >= 0 && page < static_cast<PageId>(state_.size()); }
  bool owns(PageId page) const { return InArena(page) && state_[Index(page)] != State::kForeign; }
  bool is_free(PageId page) const { return InArena(page) && state_[Index(page)] == State::kFree; }

  // kNoPage when none is free. Most recently freed first, whose bytes are likelier to be cached.
  PageId Take();
  void Give(PageId page);

  // A page of another pool is ours from now on, used.
  void Own(PageId page);
  // A used page belongs to another pool from now on.
  void Disown(PageId page);

 private:
  enum class State : uint8_t { kForeign, kFree, kUsed };
  static size_t Index(PageId page) { return static_cast<size_t>(page); }

  uint32_t total_ = 0;
  std::vector<PageId> free_;
  std::vector<State> state_;  // by page id, over the whole arena
};

}  // namespace weir::engine
