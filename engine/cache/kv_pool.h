// SPDX-License-Identifier: Apache-2.0
//
// KvPool: the pages of one engine, of both parts and of sequence state, and BlockTable: which of
// them hold one sequence. Both are counts and ids of one core's thread; nothing blocks or touches
// memory. A table does not give its pages back by itself: whoever ends a sequence calls Release.
// A pool that is short says no and changes nothing. The leading blocks of a table may belong to a
// PrefixCache instead: those are not the pool's to take back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stdx/ids.h"
#include "engine/cache/block_pool.h"
#include "engine/cache/cache_layout.h"
#include "engine/cache/kv_memory.h"

namespace weir::engine {

// What an engine owns of an arena when it starts.
struct KvShare {
  PageRange pages[kPartCount];
  PageRange states;
  PageId arena_pages[kPartCount] = {0, 0};  // ids that exist in all
  PageId arena_states = 0;
};

// All of `memory`, or the `index`-th of `count` equal shares of it.
KvShare ShareOf(const KvMemory& memory, int index = 0, int count = 1);

struct BlockTable {
  std::vector<PageId> pages[kPartCount];  // block i lies in pages[part][i]; empty without the part
  std::vector<uint32_t> shared;           // the leading blocks that belong to a PrefixCache, by its id
  PageId state = kNoPage;
  uint32_t blocks = 0;  // equal to the size of both lists where the part exists

  uint32_t own_blocks() const { return blocks - static_cast<uint32_t>(shared.size()); }
  bool empty() const { return blocks == 0 && state == kNoPage; }
};

class KvPool {
 public:
  KvPool(const CacheLayout& layout, const KvShare& share);

  bool has(Part part) const { return has_[static_cast<int>(part)]; }
  bool has_state() const { return has_state_; }
  uint32_t block_tokens() const { return block_tokens_; }
  const BlockPool& pages(int part) const { return pages_[part]; }
  const BlockPool& states() const { return states_; }

  // Blocks that are free in every part the layout has.
  uint32_t FreeBlocks() const;
  uint32_t TotalBlocks() const;
  bool StateFree() const { return !has_state_ || states_.free() > 0; }

  // Gives `table` pages up to `blocks` blocks, and a state page if it has none. All or nothing.
  [[nodiscard]] bool Grow(uint32_t blocks, BlockTable* table);
  // Takes everything back; nothing is shared. The table is empty afterwards and keeps its capacity.
  void Release(BlockTable* table);
  // One page, of a table or cache that no longer names it.
  void GivePage(int part, PageId page) { pages_[part].Give(page); }
  void GiveState(PageId page) { states_.Give(page); }

  // The pages of `mine` leave this pool, those of `theirs` join it, both used. The tables keep what
  // they hold; sizes are equal. False, with nothing changed, when an id cannot be exchanged.
  [[nodiscard]] bool Exchange(const BlockTable& mine, const BlockTable& theirs);
  // The pages of `table` leave this pool for good; the table is empty afterwards.
  void Abandon(BlockTable* table);

 private:
  uint32_t block_tokens_;
  bool has_[kPartCount];
  bool has_state_;
  BlockPool pages_[kPartCount];
  BlockPool states_;
};

// Finds pages that are in two tables, in a table and free, or used and in no table.
class PageAudit {
 public:
  explicit PageAudit(const KvPool& pool);
  // The pages that the table owns itself.
  void Add(const BlockTable& table);
  // One block's pages and a state page, kNoPage where there is none.
  void AddPages(const PageId (&pages)[kPartCount], PageId state);
  // Empty when every used page was added exactly once; otherwise one sentence.
  std::string Verdict();

 private:
  void Count(const BlockPool& pool, std::vector<uint8_t>* seen, PageId page);
  const KvPool& pool_;
  std::vector<uint8_t> seen_[kPartCount + 1];
  std::string fault_;
};

}  // namespace weir::engine
