// SPDX-License-Identifier: Apache-2.0
//
// PrefixCache: blocks of KV that outlive the request that computed them, found by key and shared by
// counting, and window states saved between them. Ids and counts of one core's thread; nothing
// blocks, no memory is touched. Pages of its blocks and states belong to it and count as used in the
// pool; a table holds the leading blocks that it shares by id. What nobody holds is evicted one by
// one, leaves before parents and least recently used first; nothing is evicted unless asked for.
//
// A block written after a bounded replay is approximate: it depends on where that replay began. An
// exact block of the same key takes its place where it can; the other way round never happens.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/stdx/ids.h"
#include "engine/cache/kv_pool.h"
#include "kvstore/key/block_key.h"

namespace weir::engine {

enum class Grade : uint8_t { kExact = 0, kApproximate = 1 };

// The windows and carries behind a position, with the rows of the incomplete block before it.
struct WindowState {
  std::vector<TokenId> tail;  // ids of the incomplete block
  PageId page = kNoPage;
  PageId tail_pages[kPartCount] = {kNoPage, kNoPage};
  Grade grade = Grade::kExact;
};

class PrefixCache {
 public:
  using StateId = int32_t;

  // `states_max`: states that may be kept; 0 for none. The pool outlives the cache.
  PrefixCache(KvPool* pool, uint32_t states_max);

  // ---- blocks

  // Gives an empty table the longest chain of these blocks that is here. With kExact as the worst
  // it ends before the first approximate one.
  void Attach(std::span<const kv::BlockKey> keys, Grade worst, BlockTable* table);
  // Gives an empty table the blocks from the first up to this one; false when it is not here.
  bool AttachUpTo(const kv::BlockKey& last, BlockTable* table);
  // The table's first own block is complete and becomes shared. Where the key is here already the
  // table gets that block's pages and gives its own back, so nobody may be reading them. False, with
  // nothing changed, when the two may not stand for each other.
  [[nodiscard]] bool Seal(const kv::BlockKey& key, Grade grade, BlockTable* table);
  Grade GradeOf(uint32_t block) const { return blocks_[block].grade; }
  // Gives everything back. Blocks that others may reuse stay.
  void Release(BlockTable* table);
  // Nobody finds the table's shared blocks any more: their content is not to be trusted.
  void Distrust(const BlockTable& table);

  // ---- window states

  // Takes the state page and an own incomplete block, if any, out of the table, which shares all its
  // complete blocks. The oldest idle state gives way; false, with the table unchanged, without one
  // and where such a state is here already.
  bool Save(std::span<const TokenId> tail, Grade grade, BlockTable* table);
  // States whose ids are those of `tokens`, behind the table's shared blocks and not more than
  // `reach` tokens before their end.
  void States(std::span<const TokenId> tokens, const BlockTable& table, Position reach, Grade worst,
              std::vector<StateId>* out) const;
  const WindowState& state(StateId id) const { return states_[static_cast<size_t>(id)].state; }
  // Where it is in a sequence that begins with the table's shared blocks.
  Position PositionOf(StateId id, const BlockTable& table) const;
  // Held states stay.
  void Hold(StateId id);
  void Drop(StateId id);

  // ---- room

  // Frees at least one block, or one state page; false when everything is in use.
  bool EvictBlock();
  bool EvictState();
  uint32_t blocks() const { return block_count_; }
  uint32_t idle_blocks() const { return idle_blocks_; }
  uint32_t states() const { return state_count_; }
  uint32_t tail_blocks() const { return tail_blocks_; }

  // ---- what others are told: keys that came (true) or went since the last call, in order
  std::vector<std::pair<uint64_t, bool>> TakeEvents() { return std::exchange(events_, {}); }
  std::vector<uint64_t> Keys() const;

  // For CheckPages: adds the cache's pages, and compares the counts with these tables'.
  std::string Audit(std::span<const BlockTable* const> tables, PageAudit* audit) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Block {
    kv::BlockKey key;
    uint32_t parent = kNone;
    uint32_t holders = 0;   // tables
    uint32_t children = 0;  // blocks and states right behind it
    Grade grade = Grade::kExact;
    bool live = false;      // false: the place is free
    bool known = false;     // found by its key
    PageId pages[kPartCount] = {kNoPage, kNoPage};
    uint64_t used = 0;      // when last, by clock_
    std::vector<StateId> states;
  };
  struct Saved {
    WindowState state;
    uint32_t block = kNone;  // the last complete one before it
    uint32_t holders = 0;    // requests that have not copied it yet
    bool live = false;
    uint64_t used = 0;
  };
  void Share(uint32_t block, BlockTable* table);
  void Pin(uint32_t block);
  void Unpin(uint32_t block);
  bool Evictable(const Block& b) const { return b.holders == 0 && b.children == 0; }
  void Forget(uint32_t block);
  void Free(uint32_t block);
  void FreeState(StateId id);
  void LeaveParent(uint32_t parent);
  bool Replace(uint32_t block, BlockTable* table);

  KvPool* const pool_;
  const uint32_t states_max_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_blocks_;
  std::vector<Saved> states_;
  std::vector<StateId> free_states_;
  absl::flat_hash_map<kv::BlockKey, uint32_t> by_key_;
  std::set<std::pair<uint64_t, uint32_t>> idle_;  // leaves that nobody holds, oldest first
  std::set<std::pair<uint64_t, StateId>> idle_states_;
  uint32_t block_count_ = 0;
  uint32_t idle_blocks_ = 0;  // held by no table, leaves or not
  uint32_t state_count_ = 0;
  uint32_t tail_blocks_ = 0;
  uint64_t clock_ = 0;
  std::vector<std::pair<uint64_t, bool>> events_;
};

}  // namespace weir::engine
