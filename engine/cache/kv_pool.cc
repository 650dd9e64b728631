// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/kv_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/stdx/check.h"

namespace weir::engine {
namespace {

PageRange SplitRange(PageId total, int index, int count) {
  const PageId each = total / count;
  return {.first = each * index, .count = each};
}

// Whether every id of `theirs` may join `pool` in place of one of `mine`.
bool Exchangeable(const BlockPool& pool, const std::vector<PageId>& mine,
                  const std::vector<PageId>& theirs) {
  if (mine.size() != theirs.size()) return false;
  std::vector<PageId> sorted = theirs;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return false;
  return std::all_of(theirs.begin(), theirs.end(), [&pool](PageId page) {
    return pool.InArena(page) && !pool.owns(page);
  });
}

}  // namespace

KvShare ShareOf(const KvMemory& memory, int index, int count) {
  KvShare share;
  for (int part = 0; part < kPartCount; ++part) {
    share.pages[part] = SplitRange(memory.page_count[part], index, count);
    share.arena_pages[part] = memory.page_count[part];
  }
  share.states = SplitRange(memory.state_count, index, count);
  share.arena_states = memory.state_count;
  return share;
}

KvPool::KvPool(const CacheLayout& layout, const KvShare& share)
    : block_tokens_(layout.block_tokens()),
      has_{layout.has(Part::kEncoder), layout.has(Part::kDecoder)},
      has_state_(layout.state_bytes() > 0),
      pages_{has_[0] ? BlockPool(share.pages[0], share.arena_pages[0]) : BlockPool(),
             has_[1] ? BlockPool(share.pages[1], share.arena_pages[1]) : BlockPool()},
      states_(has_state_ ? BlockPool(share.states, share.arena_states) : BlockPool()) {
  WEIR_CHECK(has_[0] || has_[1]);
}

uint32_t KvPool::FreeBlocks() const {
  if (!has_[0]) return pages_[1].free();
  return has_[1] ? std::min(pages_[0].free(), pages_[1].free()) : pages_[0].free();
}

uint32_t KvPool::TotalBlocks() const {
  if (!has_[0]) return pages_[1].total();
  return has_[1] ? std::min(pages_[0].total(), pages_[1].total()) : pages_[0].total();
}

bool KvPool::Grow(uint32_t blocks, BlockTable* table) {
  const bool need_state = has_state_ && table->state == kNoPage;
  if (blocks > table->blocks && blocks - table->blocks > FreeBlocks()) return false;
  if (need_state && states_.free() == 0) return false;
  for (; table->blocks < blocks; ++table->blocks) {
    for (int part = 0; part < kPartCount; ++part) {
      if (has_[part]) table->pages[part].push_back(pages_[part].Take());
    }
  }
  if (need_state) table->state = states_.Take();
  return true;
}

void KvPool::Release(BlockTable* table) {
  WEIR_CHECK(table->shared.empty());
  for (int part = 0; part < kPartCount; ++part) {
    for (const PageId page : table->pages[part]) pages_[part].Give(page);
    table->pages[part].clear();
  }
  if (table->state != kNoPage) states_.Give(table->state);
  table->state = kNoPage;
  table->blocks = 0;
}

bool KvPool::Exchange(const BlockTable& mine, const BlockTable& theirs) {
  WEIR_CHECK(mine.shared.empty());
  for (int part = 0; part < kPartCount; ++part) {
    if (!Exchangeable(pages_[part], mine.pages[part], theirs.pages[part])) return false;
  }
  if ((mine.state == kNoPage) != (theirs.state == kNoPage)) return false;
  if (mine.state != kNoPage && (!states_.InArena(theirs.state) || states_.owns(theirs.state))) {
    return false;
  }
  for (int part = 0; part < kPartCount; ++part) {
    for (const PageId page : mine.pages[part]) pages_[part].Disown(page);
    for (const PageId page : theirs.pages[part]) pages_[part].Own(page);
  }
  if (mine.state != kNoPage) {
    states_.Disown(mine.state);
    states_.Own(theirs.state);
  }
  return true;
}

void KvPool::Abandon(BlockTable* table) {
  WEIR_CHECK(table->shared.empty());
  for (int part = 0; part < kPartCount; ++part) {
    for (const PageId page : table->pages[part]) pages_[part].Disown(page);
    table->pages[part].clear();
  }
  if (table->state != kNoPage) states_.Disown(table->state);
  table->state = kNoPage;
  table->blocks = 0;
}

PageAudit::PageAudit(const KvPool& pool) : pool_(pool) {}

void PageAudit::Add(const BlockTable& table) {
  for (int part = 0; part < kPartCount; ++part) {
    for (size_t i = table.shared.size(); i < table.pages[part].size(); ++i) {
      Count(pool_.pages(part), &seen_[part], table.pages[part][i]);
    }
  }
  if (table.state != kNoPage) Count(pool_.states(), &seen_[kPartCount], table.state);
}

void PageAudit::AddPages(const PageId (&pages)[kPartCount], PageId state) {
  for (int part = 0; part < kPartCount; ++part) {
    if (pages[part] != kNoPage) Count(pool_.pages(part), &seen_[part], pages[part]);
  }
  if (state != kNoPage) Count(pool_.states(), &seen_[kPartCount], state);
}

void PageAudit::Count(const BlockPool& pool, std::vector<uint8_t>* seen, PageId page) {
  if (!pool.owns(page)) {
    fault_ = absl::StrCat("page ", page, " is in a table and not ours");
    return;
  }
  if (pool.is_free(page)) fault_ = absl::StrCat("page ", page, " is in a table and free");
  if (seen->size() <= static_cast<size_t>(page)) seen->resize(static_cast<size_t>(page) + 1);
  if ((*seen)[static_cast<size_t>(page)]++ > 0) {
    fault_ = absl::StrCat("page ", page, " is in two tables");
  }
}

std::string PageAudit::Verdict() {
  for (int i = 0; i <= kPartCount && fault_.empty(); ++i) {
    const BlockPool& pool = i < kPartCount ? pool_.pages(i) : pool_.states();
    const auto count = static_cast<uint32_t>(
        std::count_if(seen_[i].begin(), seen_[i].end(), [](uint8_t n) { return n > 0; }));
    if (count != pool.used()) {
      fault_ = absl::StrCat(pool.used(), " pages are used and ", count, " are in tables, part ", i);
    }
  }
  return fault_;
}

}  // namespace weir::engine
