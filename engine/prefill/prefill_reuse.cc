// SPDX-License-Identifier: Apache-2.0
//
// What a request takes from the prefix cache and what it leaves there. A request that shares blocks
// keeps its pages through the hand-over: the decode engine copies them, whoever owns the arena.
#include <algorithm>
#include <utility>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "engine/prefill/prefill_impl.h"

namespace weir::engine {

kv::Geometry PrefillCore::Impl::GeometryOf(const Config& config) {
  const ModelInfo& model = config.model;
  return {.block_tokens = model.layout.block_tokens(),
          .block_bytes =
              model.layout.page_bytes(Part::kEncoder) + model.layout.page_bytes(Part::kDecoder),
          .window = model.window,
          .window_layers = model.window_layers,
          .history = model.history,
          .hit_tokens_min = config.hit_tokens_min};
}

void PrefillCore::Impl::NameBlocks(Held* held, const std::string& root) {
  held->keys.clear();
  held->stays = !held->table.shared.empty();  // of an earlier attempt
  held->seals = config_.prefix_cache && root.size() == sizeof(kv::BlockKey::bytes);
  if (!held->seals) return;
  kv::KeyChain chain(LoadAs<kv::BlockKey>(root.data()), block_tokens_);
  chain.Append(held->tokens);
  held->keys.assign(chain.keys().begin(), chain.keys().end());
  // Nobody would reuse so short a beginning.
  held->seals = held->keys.size() * block_tokens_ >= config_.hit_tokens_min;
  held->stays |= held->seals;
}

void PrefillCore::Impl::AttachPrefix(Held* held) {
  WEIR_CHECK(held->table.empty());
  held->computed = 0;
  if (!held->seals) return Restart(held);
  // One token at least is computed, and what a model's carries hold of an answer is in no block.
  const size_t usable = std::min<size_t>(held->keys.size(), (held->prompt_tokens - 1) / block_tokens_);
  cache_.Attach(std::span(held->keys).first(usable), WorstGrade(), &held->table);
  if (held->table.shared.size() * block_tokens_ < config_.hit_tokens_min) {
    cache_.Release(&held->table);
  }
  Restart(held);
}

Grade PrefillCore::Impl::WorstGrade() const {
  return config_.replay == kv::ReplayMode::kExact ? Grade::kExact : Grade::kApproximate;
}

// Where to go on, given the blocks that the table shares: at first, and after a void chunk.
void PrefillCore::Impl::Restart(Held* held) {
  DropState(held);
  std::vector<kv::HitRun> runs;
  for (const uint32_t block : held->table.shared) {
    const bool approximate = cache_.GradeOf(block) == Grade::kApproximate;
    if (runs.empty() || runs.back().approximate != approximate) {
      runs.push_back({.approximate = approximate});
    }
    ++runs.back().blocks;
  }
  std::vector<PrefixCache::StateId> states;
  std::vector<Position> positions;
  if (!geometry_.plain()) {
    const Position reach = geometry_.catch_up + block_tokens_;
    cache_.States(held->tokens, held->table, reach, WorstGrade(), &states);
    for (const auto id : states) positions.push_back(cache_.PositionOf(id, held->table));
  }
  const auto count = static_cast<Position>(held->tokens.size());
  const Position last = held->prompt_tokens - 1;
  const kv::HitPlan plan = kv::PlanHit(
      {.geometry = geometry_,
       .replay = config_.replay,
       .tokens = count,
       .resume_max = config_.model.decoder_tail_rows > 0 ? std::min(held->tail_start, last) : last,
       .runs = runs,
       .states = positions});
  held->computed = plan.compute_from;
  held->visible_from = plan.visible_from;
  held->grade = plan.approximate ? Grade::kApproximate : Grade::kExact;
  if (plan.state >= 0) {
    held->state = states[static_cast<size_t>(plan.state)];
    held->has_state = true;
    cache_.Hold(held->state);
  }
  if (!held->ran) held->billed = plan.billed;
  if (IsPlanted(Planted::kBillsBlockBegun) && held->billed > 0) held->billed += block_tokens_;
  if (plan.hit == 0) return;
  switch (plan.window) {
    case kv::WindowSource::kNone: WEIR_REACHED("prefill: goes on behind a hit"); break;
    case kv::WindowSource::kState: WEIR_REACHED("prefill: goes on at a window state"); break;
    case kv::WindowSource::kCatchUp: WEIR_REACHED("prefill: catches up from a window state"); break;
    case kv::WindowSource::kExact: WEIR_REACHED("prefill: exact replay"); break;
    case kv::WindowSource::kBounded: WEIR_REACHED("prefill: bounded replay"); break;
  }
}

void PrefillCore::Impl::DropState(Held* held) {
  if (std::exchange(held->has_state, false)) cache_.Drop(held->state);
}

// The first step behind a hit begins with the state's pages: copies, since others may want them too.
void PrefillCore::Impl::CopyState(const Held& held) {
  if (!held.has_state) return;
  const WindowState& state = cache_.state(held.state);
  plan_.copies.push_back({.kind = PageCopy::Kind::kState, .from = state.page, .to = held.table.state});
  for (int part = 0; part < kPartCount; ++part) {
    // A tail inside the shared blocks is there already.
    if (state.tail_pages[part] == kNoPage || held.computed < SharedTokens(held)) continue;
    plan_.copies.push_back({.part = static_cast<Part>(part),
                            .from = state.tail_pages[part],
                            .to = held.table.pages[part][held.computed / block_tokens_]});
  }
}

// Before the blocks are offered to anybody: one that was computed twice changes its pages.
void PrefillCore::Impl::SealComplete(Held* held) {
  while (held->seals && held->table.shared.size() < held->keys.size() &&
         SharedTokens(*held) + block_tokens_ <= held->computed) {
    const size_t index = held->table.shared.size();
    held->seals = cache_.Seal(held->keys[index], held->grade, &held->table);
  }
}

void PrefillCore::Impl::GiveBack(Held* held) {
  DropState(held);
  const bool complete = held->stays && held->computed_all() &&
                        held->table.shared.size() == held->tokens.size() / block_tokens_;
  if (complete && !geometry_.plain() && held->table.state != kNoPage) {
    const auto tail = std::span<const TokenId>(held->tokens).subspan(SharedTokens(*held));
    if (cache_.Save(tail, held->grade, &held->table)) WEIR_REACHED("prefill: window state saved");
  }
  cache_.Release(&held->table);
}

void PrefillCore::Impl::TellRouters() {
  for (const auto& [key, added] : cache_.TakeEvents()) {
    // What came and went since the last message is no news.
    const auto found = news_.find(key);
    if (found == news_.end()) {
      news_.emplace(key, added);
    } else if (found->second != added) {
      news_.erase(found);
    }
  }
  if (news_.empty()) {
    news_due_ = kNever;
    return;
  }
  if (news_due_ == kNever) news_due_ = std::max(now_, news_sent_ + kCacheEventsGap);
  if (now_ < news_due_ && news_.size() < kCacheEventsMax) return;
  ++news_number_;
  for (const InstanceId router : peers_.routers()) {
    pb::CacheEvents& events = *SendTo(router, out_).mutable_cache_events();
    events.set_number(news_number_);
    for (const auto& [key, added] : news_) {
      added ? events.add_added(key) : events.add_removed(key);
    }
  }
  news_.clear();
  news_sent_ = now_;
  news_due_ = kNever;
}

void PrefillCore::Impl::SendSnapshot(InstanceId router) {
  pb::CacheEvents& events = *SendTo(router, out_).mutable_cache_events();
  events.set_number(news_number_);
  events.set_snapshot(true);
  std::vector<uint64_t> keys = cache_.Keys();
  keys.resize(std::min<size_t>(keys.size(), kCacheSnapshotMax));
  events.mutable_added()->Add(keys.begin(), keys.end());
}

}  // namespace weir::engine
