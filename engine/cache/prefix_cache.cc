// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/prefix_cache.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/stdx/check.h"
#include "base/stdx/planted.h"

namespace weir::engine {

PrefixCache::PrefixCache(KvPool* pool, uint32_t states_max)
    : pool_(pool), states_max_(pool->has_state() ? states_max : 0) {}

void PrefixCache::Attach(std::span<const kv::BlockKey> keys, Grade worst, BlockTable* table) {
  WEIR_CHECK(table->blocks == 0);
  ++clock_;
  for (const kv::BlockKey& key : keys) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) break;
    if (blocks_[found->second].grade > worst) break;
    Share(found->second, table);
  }
}

bool PrefixCache::AttachUpTo(const kv::BlockKey& last, BlockTable* table) {
  WEIR_CHECK(table->blocks == 0);
  const auto found = by_key_.find(last);
  if (found == by_key_.end()) return false;
  std::vector<uint32_t> chain;
  for (uint32_t id = found->second; id != kNone; id = blocks_[id].parent) chain.push_back(id);
  ++clock_;
  for (auto id = chain.rbegin(); id != chain.rend(); ++id) Share(*id, table);
  return true;
}

void PrefixCache::Share(uint32_t id, BlockTable* table) {
  Pin(id);
  table->shared.push_back(id);
  for (int part = 0; part < kPartCount; ++part) {
    if (pool_->has(static_cast<Part>(part))) table->pages[part].push_back(blocks_[id].pages[part]);
  }
  ++table->blocks;
}

bool PrefixCache::Seal(const kv::BlockKey& key, Grade grade, BlockTable* table) {
  const size_t index = table->shared.size();
  WEIR_CHECK(index < table->blocks);
  ++clock_;
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    const uint32_t id = found->second;
    if (blocks_[id].grade > grade && !Replace(id, table)) return false;
    WEIR_REACHED("cache: a block was computed twice");
    const Block& block = blocks_[id];
    for (int part = 0; part < kPartCount; ++part) {
      if (!pool_->has(static_cast<Part>(part))) continue;
      pool_->GivePage(part, std::exchange(table->pages[part][index], block.pages[part]));
    }
    Pin(id);
    table->shared.push_back(id);
    return true;
  }
  uint32_t id = static_cast<uint32_t>(blocks_.size());
  if (free_blocks_.empty()) {
    blocks_.emplace_back();
  } else {
    id = free_blocks_.back();
    free_blocks_.pop_back();
  }
  Block& block = blocks_[id];
  block = Block();
  block.key = key;
  block.grade = grade;
  block.live = block.known = true;
  block.holders = 1;
  block.used = clock_;
  if (index > 0) {
    block.parent = table->shared.back();
    ++blocks_[block.parent].children;  // held by this table, so it is in no list
  }
  for (int part = 0; part < kPartCount; ++part) {
    if (pool_->has(static_cast<Part>(part))) block.pages[part] = table->pages[part][index];
  }
  table->shared.push_back(id);
  by_key_.emplace(key, id);
  ++block_count_;
  events_.emplace_back(key.index().hi, true);
  return true;
}

// An exact block takes the place of an approximate one that nobody holds or has built upon: the two
// exchange their pages, and the caller gives the approximate ones back.
bool PrefixCache::Replace(uint32_t id, BlockTable* table) {
  Block& block = blocks_[id];
  if (!Evictable(block)) return false;
  WEIR_REACHED("cache: an exact block takes the place of an approximate one");
  for (int part = 0; part < kPartCount; ++part) {
    if (!pool_->has(static_cast<Part>(part))) continue;
    std::swap(block.pages[part], table->pages[part][table->shared.size()]);
  }
  block.grade = Grade::kExact;
  return true;
}

void PrefixCache::Release(BlockTable* table) {
  if (!table->shared.empty()) ++clock_;
  // From the end, so that parents are never older than their children.
  while (!table->shared.empty()) {
    const uint32_t id = table->shared.back();
    table->shared.pop_back();
    for (auto& pages : table->pages) {
      if (!pages.empty()) pages[table->shared.size()] = kNoPage;
    }
    Unpin(id);
  }
  for (auto& pages : table->pages) std::erase(pages, kNoPage);
  pool_->Release(table);
}

void PrefixCache::Distrust(const BlockTable& table) {
  for (const uint32_t id : table.shared) {
    if (blocks_[id].known) Forget(id);
  }
}

bool PrefixCache::Save(std::span<const TokenId> tail, Grade grade, BlockTable* table) {
  const auto complete = static_cast<uint32_t>(table->shared.size());
  WEIR_CHECK(complete > 0 && table->state != kNoPage);
  WEIR_CHECK(table->blocks == complete + (tail.empty() ? 0 : 1));
  if (states_max_ == 0) return false;
  for (const StateId id : blocks_[table->shared.back()].states) {
    Saved& saved = states_[static_cast<size_t>(id)];
    if (saved.state.grade > grade || !std::equal(tail.begin(), tail.end(), saved.state.tail.begin(),
                                                 saved.state.tail.end())) {
      continue;
    }
    Hold(id);
    Drop(id);  // as good as new
    return false;
  }
  if (state_count_ >= states_max_ && !EvictState()) return false;
  StateId id = static_cast<StateId>(states_.size());
  if (free_states_.empty()) {
    states_.emplace_back();
  } else {
    id = free_states_.back();
    free_states_.pop_back();
  }
  Saved& saved = states_[static_cast<size_t>(id)];
  saved = Saved();
  saved.block = table->shared.back();
  saved.live = true;
  saved.used = ++clock_;
  WindowState& state = saved.state;
  state.tail.assign(tail.begin(), tail.end());
  state.page = std::exchange(table->state, kNoPage);
  state.grade = grade;
  if (!tail.empty()) {
    for (int part = 0; part < kPartCount; ++part) {
      if (!pool_->has(static_cast<Part>(part))) continue;
      state.tail_pages[part] = table->pages[part].back();
      table->pages[part].pop_back();
    }
    --table->blocks;
    ++tail_blocks_;
  }
  Block& block = blocks_[saved.block];
  ++block.children;
  block.states.push_back(id);
  ++state_count_;
  idle_states_.emplace(saved.used, id);
  return true;
}

void PrefixCache::States(std::span<const TokenId> tokens, const BlockTable& table, Position reach,
                         Grade worst, std::vector<StateId>* out) const {
  if (table.shared.empty()) return;
  const uint32_t block_tokens = pool_->block_tokens();
  const size_t count = table.shared.size();
  const size_t back = std::min<size_t>(count, reach / block_tokens + 2);
  for (size_t i = count - back; i < count; ++i) {
    const Position end = static_cast<Position>(i + 1) * block_tokens;
    for (const StateId id : blocks_[table.shared[i]].states) {
      const WindowState& state = states_[static_cast<size_t>(id)].state;
      if (state.grade > worst || end + state.tail.size() > tokens.size()) continue;
      if (std::equal(state.tail.begin(), state.tail.end(), tokens.begin() + end) ||
          IsPlanted(Planted::kStateOfOthers)) {
        out->push_back(id);
      }
    }
  }
}

Position PrefixCache::PositionOf(StateId id, const BlockTable& table) const {
  const Saved& saved = states_[static_cast<size_t>(id)];
  const auto place = std::find(table.shared.rbegin(), table.shared.rend(), saved.block);
  WEIR_CHECK(place != table.shared.rend());
  return static_cast<Position>(table.shared.rend() - place) * pool_->block_tokens() +
         static_cast<Position>(saved.state.tail.size());
}

void PrefixCache::Hold(StateId id) {
  Saved& saved = states_[static_cast<size_t>(id)];
  if (saved.holders++ == 0) idle_states_.erase({saved.used, id});
}

void PrefixCache::Drop(StateId id) {
  Saved& saved = states_[static_cast<size_t>(id)];
  WEIR_CHECK(saved.live && saved.holders > 0);
  if (--saved.holders > 0) return;
  saved.used = ++clock_;
  idle_states_.emplace(saved.used, id);
}

void PrefixCache::Pin(uint32_t id) {
  Block& block = blocks_[id];
  if (block.holders++ == 0) {
    --idle_blocks_;
    if (block.children == 0) idle_.erase({block.used, id});
  }
  block.used = clock_;
}

void PrefixCache::Unpin(uint32_t id) {
  Block& block = blocks_[id];
  WEIR_CHECK(block.live && block.holders > 0);
  if (--block.holders > 0) return;
  block.used = clock_;
  ++idle_blocks_;
  if (block.children > 0) return;
  if (block.known) {
    idle_.emplace(block.used, id);
  } else {
    Free(id);
  }
}

bool PrefixCache::EvictBlock() {
  // A state and the block before it are of one age or the state is the younger; whichever leaf was
  // used first goes.
  const bool state_first =
      !idle_states_.empty() && (idle_.empty() || idle_states_.begin()->first < idle_.begin()->first);
  if (state_first) {
    const StateId id = idle_states_.begin()->second;
    const bool had_block = !states_[static_cast<size_t>(id)].state.tail.empty();
    FreeState(id);
    return had_block || EvictBlock();
  }
  if (idle_.empty()) return false;
  Forget(idle_.begin()->second);
  return true;
}

bool PrefixCache::EvictState() {
  if (idle_states_.empty()) return false;
  FreeState(idle_states_.begin()->second);
  return true;
}

// The block is found no more, and is freed as soon as nobody holds it or has built upon it.
void PrefixCache::Forget(uint32_t id) {
  Block& block = blocks_[id];
  WEIR_CHECK(block.known);
  by_key_.erase(block.key);
  block.known = false;
  events_.emplace_back(block.key.index().hi, false);
  if (!Evictable(block)) return;
  idle_.erase({block.used, id});
  Free(id);
}

void PrefixCache::Free(uint32_t id) {
  Block& block = blocks_[id];
  WEIR_CHECK(block.live && !block.known && Evictable(block) && block.states.empty());
  for (int part = 0; part < kPartCount; ++part) {
    if (block.pages[part] != kNoPage) pool_->GivePage(part, block.pages[part]);
  }
  const uint32_t parent = block.parent;
  block.live = false;
  free_blocks_.push_back(id);
  --block_count_;
  --idle_blocks_;
  LeaveParent(parent);
}

void PrefixCache::FreeState(StateId id) {
  Saved& saved = states_[static_cast<size_t>(id)];
  WEIR_CHECK(saved.live && saved.holders == 0);
  idle_states_.erase({saved.used, id});
  pool_->GiveState(saved.state.page);
  for (int part = 0; part < kPartCount; ++part) {
    if (saved.state.tail_pages[part] != kNoPage) {
      pool_->GivePage(part, saved.state.tail_pages[part]);
    }
  }
  if (!saved.state.tail.empty()) --tail_blocks_;
  saved.live = false;
  --state_count_;
  free_states_.push_back(id);
  std::erase(blocks_[saved.block].states, id);
  LeaveParent(saved.block);
}

void PrefixCache::LeaveParent(uint32_t parent) {
  if (parent == kNone) return;
  Block& block = blocks_[parent];
  WEIR_CHECK(block.live && block.children > 0);
  if (--block.children > 0 || block.holders > 0) return;
  if (block.known) {
    idle_.emplace(block.used, parent);
  } else {
    Free(parent);
  }
}

std::vector<uint64_t> PrefixCache::Keys() const {
  std::vector<uint64_t> keys;
  keys.reserve(by_key_.size());
  for (const Block& block : blocks_) {
    if (block.live && block.known) keys.push_back(block.key.index().hi);
  }
  return keys;
}

std::string PrefixCache::Audit(std::span<const BlockTable* const> tables, PageAudit* audit) const {
  std::vector<uint32_t> holders(blocks_.size(), 0), children(blocks_.size(), 0);
  for (const BlockTable* table : tables) {
    for (size_t i = 0; i < table->shared.size(); ++i) {
      const uint32_t id = table->shared[i];
      ++holders[id];
      if (!blocks_[id].live) return "a table holds a block that is free";
      for (int part = 0; part < kPartCount; ++part) {
        if (table->pages[part].empty()) continue;
        if (table->pages[part][i] != blocks_[id].pages[part]) return "a table's page is not its block's";
      }
    }
  }
  uint32_t live = 0, idle = 0, leaves = 0, states = 0;
  for (const Block& block : blocks_) {
    if (!block.live) continue;
    ++live;
    audit->AddPages(block.pages, kNoPage);
    if (block.parent != kNone) ++children[block.parent];
    for (const StateId id : block.states) {
      const Saved& saved = states_[static_cast<size_t>(id)];
      if (!saved.live) return "a block lists a state that is free";
      audit->AddPages(saved.state.tail_pages, saved.state.page);
      ++states;
    }
  }
  for (uint32_t id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    if (!block.live) continue;
    children[id] += static_cast<uint32_t>(block.states.size());
    if (block.holders != holders[id]) return absl::StrCat("block ", id, " counts its holders wrong");
    if (block.children != children[id]) return absl::StrCat("block ", id, " counts what is behind it wrong");
    idle += block.holders == 0 ? 1 : 0;
    leaves += Evictable(block) ? 1 : 0;
  }
  if (live != block_count_ || idle != idle_blocks_) return "cached blocks are lost";
  if (leaves != idle_.size()) return "blocks that could be evicted are lost";
  if (states != state_count_) return "window states are lost";
  return {};
}

}  // namespace weir::engine
