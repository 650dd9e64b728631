// SPDX-License-Identifier: Apache-2.0
//
// Gauges and invariants of DecodeCore.
#include "absl/strings/str_cat.h"
#include "engine/decode/decode_impl.h"

namespace weir::engine {

LoadFigures DecodeCore::Impl::figures() const {
  LoadFigures f;
  f.slots_total = config_.slots;
  f.slots_used = config_.slots - static_cast<uint32_t>(free_slots_.size());
  f.pages_total = pool_.TotalBlocks();
  f.pages_used = f.pages_total - pool_.FreeBlocks();
  f.queued = static_cast<uint32_t>(queue_.size());
  f.queued_tokens = queued_tokens_;
  f.draining = draining_;
  return f;
}

EngineState DecodeCore::Impl::state() const {
  EngineState s = counters_;
  s.slots_total = config_.slots;
  s.slots_used = config_.slots - static_cast<uint32_t>(free_slots_.size());
  for (int part = 0; part < kPartCount; ++part) {
    s.pages_total[part] = pool_.pages(part).total();
    s.pages_used[part] = pool_.pages(part).used();
  }
  s.state_pages_used = pool_.states().used();
  s.leases = static_cast<uint32_t>(leases_.size());
  s.queued = static_cast<uint32_t>(queue_.size());
  s.fetches = static_cast<uint32_t>(by_fetch_.size());
  s.step_running = step_running_;
  s.draining = draining_;
  return s;
}

std::string DecodeCore::Impl::CheckInvariants() const {
  size_t pages[kPartCount] = {0, 0};
  size_t states = 0;
  size_t fetches = 0;
  uint32_t free = 0, running = 0, live = 0, ending = 0;
  for (const Sequence& s : sequences_) {
    for (int part = 0; part < kPartCount; ++part) pages[part] += s.table.pages[part].size();
    states += s.table.state == kNoPage ? 0 : 1;
    free += s.phase == Phase::kFree ? 1 : 0;
    running += s.phase == Phase::kRunning ? 1 : 0;
    live += s.phase == Phase::kRunning || s.phase == Phase::kReserved ? 1 : 0;
    ending += s.phase == Phase::kEnding ? 1 : 0;
    if (s.phase == Phase::kFree) {
      if (!s.table.empty()) return "a free slot holds pages";
      continue;
    }
    fetches += s.receiver.fetches().size();
    if (s.phase != Phase::kEnding && !leases_.Holds(s.id.request)) {
      return "a sequence is held without a lease";
    }
  }
  for (int part = 0; part < kPartCount; ++part) {
    if (pages[part] != pool_.pages(part).used()) {
      return absl::StrCat(pool_.pages(part).used(), " pages are used and ", pages[part],
                          " are in tables, part ", part);
    }
  }
  if (states != pool_.states().used()) return "state pages are lost";
  if (fetches != by_fetch_.size()) return "reads are lost";
  if (free != free_slots_.size() || ending != ending_) return "slots are lost";
  if (running != scheduler_.size()) return "running sequences are lost";
  if (by_key_.size() != live + queue_.size()) return "keys are lost";
  if (leases_.size() != by_key_.size()) return "a lease without a request";
  return {};
}

std::string DecodeCore::Impl::CheckPages() const {
  PageAudit audit(pool_);
  for (const Sequence& s : sequences_) audit.Add(s.table);
  std::string verdict = audit.Verdict();
  return verdict.empty() ? CheckInvariants() : verdict;
}

std::vector<DecodeCore::SequenceInfo> DecodeCore::Impl::Sequences() const {
  std::vector<SequenceInfo> out;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = sequences_[i];
    if (s.phase == Phase::kFree) continue;
    out.push_back({.key = s.id.request,
                   .attempt = s.id.attempt,
                   .slot = SlotId(static_cast<int32_t>(i)),
                   .phase = s.phase == Phase::kReserved  ? "reserved"
                            : s.phase == Phase::kRunning ? "running"
                                                         : "ending",
                   .cursor = s.cursor,
                   .emitted = s.emitted_here,
                   .blocks = s.table.blocks,
                   .fetches = static_cast<uint32_t>(s.receiver.fetches().size())});
  }
  for (const Waiting& waiting : queue_) {
    out.push_back({.key = waiting.id.request,
                   .attempt = waiting.id.attempt,
                   .phase = "queued",
                   .cursor = waiting.message.token_count()});
  }
  return out;
}

}  // namespace weir::engine
