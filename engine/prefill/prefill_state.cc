// SPDX-License-Identifier: Apache-2.0
//
// Gauges and invariants of PrefillCore.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/prefill/prefill_impl.h"

namespace weir::engine {

LoadFigures PrefillCore::Impl::figures() const {
  LoadFigures f;
  f.slots_total = config_.slots;
  f.slots_used = config_.slots - static_cast<uint32_t>(free_slots_.size());
  f.pages_total = pool_.TotalBlocks();
  uint32_t idle = cache_.idle_blocks() + cache_.tail_blocks();
  for (const Held* held : retained_) idle += held->table.own_blocks();
  f.pages_used = f.pages_total - pool_.FreeBlocks() - idle;
  f.queued = static_cast<uint32_t>(queue_.size());
  f.queued_tokens = QueuedTokens();
  for (const Held* held : slots_) f.queued_tokens += held == nullptr ? 0 : held->remaining();
  f.draining = draining_;
  return f;
}

EngineState PrefillCore::Impl::state() const {
  EngineState s = counters_;
  s.slots_total = config_.slots;
  s.slots_used = config_.slots - static_cast<uint32_t>(free_slots_.size());
  uint32_t states_retained = 0;
  for (const Held* held : retained_) {
    for (int part = 0; part < kPartCount; ++part) {
      if (pool_.has(static_cast<Part>(part))) s.pages_retained[part] += held->table.own_blocks();
    }
    states_retained += held->table.state == kNoPage ? 0 : 1;
  }
  for (int part = 0; part < kPartCount; ++part) {
    s.pages_total[part] = pool_.pages(part).total();
    if (!pool_.has(static_cast<Part>(part))) continue;
    s.pages_used[part] = pool_.pages(part).used() - s.pages_retained[part] -
                         cache_.idle_blocks() - cache_.tail_blocks();
  }
  s.state_pages_used = pool_.states().used() - states_retained - cache_.states();
  s.fetches = static_cast<uint32_t>(keeping_.size());
  s.blocks_shared = cache_.blocks();
  s.window_states = cache_.states();
  s.leases = static_cast<uint32_t>(leases_.size());
  s.queued = static_cast<uint32_t>(queue_.size());
  s.step_running = step_running_;
  s.draining = draining_;
  return s;
}

std::string PrefillCore::Impl::CheckInvariants() const {
  size_t pages[kPartCount] = {0, 0};
  size_t states = 0;
  const auto count = [&](const BlockTable& table) {
    for (int part = 0; part < kPartCount; ++part) {
      if (pool_.has(static_cast<Part>(part))) pages[part] += table.own_blocks();
    }
    states += table.state == kNoPage ? 0 : 1;
  };
  for (const auto& [key, held] : current_) {
    count(held->table);
    if (held->after_step != AfterStep::kDrop && !leases_.Holds(key)) {
      return "a request is held without a lease";
    }
    const bool running = held->phase == Phase::kComputing;
    if (running != (held->slot.value >= 0)) return "slot and phase disagree";
  }
  for (const auto& [key, held] : closing_) count(held->table);
  for (const auto& [fetch, keeping] : keeping_) count(keeping.table);
  states += cache_.states();
  for (int part = 0; part < kPartCount; ++part) {
    if (pool_.has(static_cast<Part>(part))) pages[part] += cache_.blocks() + cache_.tail_blocks();
    if (pages[part] != pool_.pages(part).used()) {
      return absl::StrCat(pool_.pages(part).used(), " pages are used and ", pages[part],
                          " are in tables, part ", part);
    }
  }
  if (states != pool_.states().used()) return "state pages are lost";
  if (leases_.size() > current_.size()) return "a lease without a request";
  return {};
}

std::string PrefillCore::Impl::CheckPages() const {
  PageAudit audit(pool_);
  std::vector<const BlockTable*> tables;
  for (const auto& [key, held] : current_) tables.push_back(&held->table);
  for (const auto& [key, held] : closing_) tables.push_back(&held->table);
  for (const auto& [fetch, keeping] : keeping_) tables.push_back(&keeping.table);
  for (const BlockTable* table : tables) audit.Add(*table);
  std::string verdict = cache_.Audit(tables, &audit);
  if (verdict.empty()) verdict = audit.Verdict();
  return verdict.empty() ? CheckInvariants() : verdict;
}

std::vector<PrefillCore::RequestInfo> PrefillCore::Impl::Requests() const {
  std::vector<RequestInfo> out;
  const auto add = [&out](const Held& held) {
    const char* phase = "closing";
    switch (held.phase) {
      case Phase::kQueued: phase = "queued"; break;
      case Phase::kComputing: phase = "computing"; break;
      case Phase::kComputed: phase = held.sender.attached() ? "handover" : "waiting"; break;
      case Phase::kRetained: phase = "retained"; break;
      case Phase::kClosing: break;
    }
    out.push_back({.key = held.id.request,
                   .attempt = held.id.attempt,
                   .phase = phase,
                   .tokens = static_cast<Position>(held.tokens.size()),
                   .computed = held.computed,
                   .blocks = held.table.blocks,
                   .sink = held.sender.sink()});
  };
  for (const auto& [key, held] : current_) add(*held);
  for (const auto& [key, held] : closing_) add(*held);
  return out;
}

}  // namespace weir::engine
