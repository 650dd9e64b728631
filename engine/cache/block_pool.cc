// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/block_pool.h"

#include "base/stdx/check.h"
#include "base/stdx/planted.h"

namespace weir::engine {

BlockPool::BlockPool(PageRange range, PageId arena_pages)
    : total_(static_cast<uint32_t>(range.count)),
      state_(static_cast<size_t>(arena_pages), State::kForeign) {
  WEIR_CHECK(range.first >= 0 && range.count >= 0 && range.first + range.count <= arena_pages);
  // Every page of the arena may end up here; without this a swap could allocate in a step.
  free_.reserve(static_cast<size_t>(arena_pages));
  for (PageId i = range.count; i > 0; --i) {
    const PageId page = range.first + i - 1;
    state_[Index(page)] = State::kFree;
    free_.push_back(page);
  }
}

PageId BlockPool::Take() {
  if (free_.empty()) return kNoPage;
  const PageId page = free_.back();
  free_.pop_back();
  state_[Index(page)] = State::kUsed;
  return page;
}

void BlockPool::Give(PageId page) {
  // The planted bug gives a page back twice; the invariants shall find it, not this check.
  if (IsPlanted(Planted::kStaleBlockTable) && (is_free(page) || !owns(page))) return;
  WEIR_CHECK(owns(page) && !is_free(page));
  state_[Index(page)] = State::kFree;
  free_.push_back(page);
}

void BlockPool::Own(PageId page) {
  WEIR_CHECK(InArena(page) && !owns(page));
  state_[Index(page)] = State::kUsed;
  ++total_;
}

void BlockPool::Disown(PageId page) {
  if (IsPlanted(Planted::kStaleBlockTable)) {
    if (!owns(page)) return;
    std::erase(free_, page);
  }
  WEIR_CHECK(owns(page) && (!is_free(page) || IsPlanted(Planted::kStaleBlockTable)));
  state_[Index(page)] = State::kForeign;
  --total_;
}

}  // namespace weir::engine
