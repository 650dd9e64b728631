// SPDX-License-Identifier: Apache-2.0
//
// Admission and steps of PrefillCore.
#include <algorithm>
#include <utility>

#include "base/stdx/check.h"
#include "engine/prefill/prefill_impl.h"

namespace weir::engine {

void PrefillCore::Impl::Admit() {
  while (!queue_.empty() && !free_slots_.empty()) {
    if (TrySeat(queue_.front())) continue;
    // Whoever has a reservation holds pages of a decode engine and must not wait behind one that
    // may itself wait for that engine.
    const auto reserved = std::find_if(queue_.begin(), queue_.end(), [](const Held* held) {
      return held->sender.attached();
    });
    if (reserved == queue_.end() || *reserved == queue_.front()) return;
    if (!TrySeat(*reserved)) return;
    WEIR_REACHED("prefill: a reserved request overtook");
  }
}

bool PrefillCore::Impl::TrySeat(Held* held) {
  const auto count = static_cast<Position>(held->tokens.size());
  if (held->table.empty()) AttachPrefix(held);
  if (!MakeRoom(held, config_.model.layout.BlocksFor(count))) return false;
  LeaveLists(held);
  held->phase = Phase::kComputing;
  held->seated = now_;
  held->slot = free_slots_.back();
  free_slots_.pop_back();
  const auto index = static_cast<size_t>(held->slot.value);
  slots_[index] = held;
  SlotView& view = views_[index];
  for (int part = 0; part < kPartCount; ++part) view.pages[part] = held->table.pages[part];
  view.state = held->table.state;
  view.sampling = &held->sampling;
  view.emitted = std::span<const TokenId>(held->tokens).subspan(held->prompt_tokens);
  view.prompt_tokens = held->prompt_tokens;
  view.tail_start = held->tail_start;
  Offer(held);
  return true;
}

// Shared blocks that nobody holds go first, then retained pages. Then those of queued requests that would have resumed: with all pages
// kept by requests that each wait for a little more, nobody would ever proceed. Then, for a request
// with a reservation, what was computed for one without: that one may wait for pages of the very
// decode engine that the reservation keeps.
bool PrefillCore::Impl::MakeRoom(Held* held, uint32_t blocks) {
  while (!pool_.Grow(blocks, &held->table)) {
    const bool lacks_state = pool_.has_state() && held->table.state == kNoPage && !pool_.StateFree();
    if (lacks_state ? cache_.EvictState() : cache_.EvictBlock()) {
      WEIR_REACHED("prefill: shared blocks evicted for a new request");
      continue;
    }
    if (!retained_.empty()) {
      WEIR_REACHED("prefill: retained pages evicted for a new request");
      EvictOldestRetained();
      continue;
    }
    const auto victim = std::find_if(queue_.rbegin(), queue_.rend(), [held](const Held* other) {
      return other != held && !other->table.empty();
    });
    if (victim != queue_.rend()) {
      WEIR_REACHED("prefill: a queued request lost what it would have resumed");
      Strip(*victim);
      continue;
    }
    Held* waiting = held->sender.attached() ? YoungestWaiting() : nullptr;
    if (waiting == nullptr) return false;
    WEIR_REACHED("prefill: computed before its reservation and queued again");
    Strip(waiting);
    waiting->phase = Phase::kQueued;
    waiting->place = queue_.insert(queue_.end(), waiting);
    waiting->listed = true;
  }
  return true;
}

void PrefillCore::Impl::Strip(Held* held) {
  GiveBack(held);
  held->computed = 0;
  held->visible_from = 0;
  held->has_first = false;
}

HeldRequest* PrefillCore::Impl::YoungestWaiting() {
  Held* youngest = nullptr;
  for (auto& [key, held] : current_) {
    if (held->phase != Phase::kComputed || held->sender.attached()) continue;
    if (youngest == nullptr || held->arrival > youngest->arrival) youngest = held.get();
  }
  return youngest;
}

void PrefillCore::Impl::EvictOldestRetained() { Drop(retained_.front()); }

void PrefillCore::Impl::Launch() {
  if (step_running_ || poisoned_) return;
  candidates_.clear();
  for (const Held* held : slots_) {
    if (held == nullptr) continue;
    candidates_.push_back(
        {.slot = held->slot, .remaining = held->remaining(), .arrival = held->arrival});
  }
  if (candidates_.empty()) return;
  scheduler_.Assign(candidates_);
  plan_.Clear();
  plan_.step = StepId(++last_step_);
  plan_.slots = views_;
  for (const PrefillCandidate& candidate : candidates_) {
    if (candidate.rows == 0) continue;
    Held& held = *slots_[static_cast<size_t>(candidate.slot.value)];
    uint32_t rows = std::min(candidate.rows, kRowGroupMax);
    // Rows that only leave their ids behind are a group of their own: nobody sees their windows.
    const bool before = held.computed < held.visible_from;
    if (before) rows = std::min(rows, held.visible_from - held.computed);
    CopyState(held);
    plan_.rows.push_back({.slot = held.slot,
                          .kind = RowKind::kPrefill,
                          .first = held.computed,
                          .count = static_cast<uint16_t>(rows),
                          .token_offset = static_cast<uint32_t>(plan_.tokens.size()),
                          .write_floor = SharedTokens(held),
                          .visible_from = before ? held.computed : held.visible_from,
                          .sample = rows == held.remaining()});
    const auto from = held.tokens.begin() + held.computed;
    plan_.tokens.insert(plan_.tokens.end(), from, from + rows);
    held.in_step = true;
  }
  step_running_ = true;
  out_->launch = &plan_;
}

void PrefillCore::Impl::Handle(const StepDone& event) {
  const StepResult& result = event.result;
  WEIR_CHECK(step_running_ && result.step == plan_.step);
  if (result.health == StepHealth::kPoisoned) {
    WEIR_REACHED("prefill: device poisoned");
    poisoned_ = true;
    out_->poisoned = true;
    return;
  }
  step_running_ = false;
  const bool counts = result.health == StepHealth::kOk;
  if (counts) {
    ++counters_.steps;
  } else {
    WEIR_REACHED("prefill: void step");
  }
  size_t sampled = 0;
  for (const StepRow& row : plan_.rows) {
    Held* held = slots_[static_cast<size_t>(row.slot.value)];
    held->in_step = false;
    if (counts) {
      const Accepted* accepted = nullptr;
      if (row.sample) {
        WEIR_CHECK(sampled < result.accepted.size());
        accepted = &result.accepted[sampled++];
        WEIR_CHECK(accepted->slot == row.slot && accepted->count == 1);
      }
      Commit(held, row, result, accepted);
    } else if (row.count > config_.model.draft_max + 1) {
      // Rings keep the rows that a repeated step must read only behind so many new ones (windows
      // have 2(gamma + 1) rows to spare); a longer chunk has overwritten them.
      WEIR_REACHED("prefill: a void chunk starts the prompt anew");
      Restart(held);
    }
    AfterStepOf(held);
  }
}

void PrefillCore::Impl::Commit(Held* held, const StepRow& row, const StepResult& result,
                               const Accepted* accepted) {
  held->computed = row.first + row.count;
  held->rows_computed += row.count;
  counters_.rows_computed += row.count;
  DropState(held);
  if (!std::exchange(held->ran, true)) counters_.tokens_hit += held->billed;
  if (accepted == nullptr) return SealComplete(held);
  if (result.tokens[accepted->token_offset] < 0) {
    WEIR_REACHED("prefill: logits are no numbers");
    held->computed = 0;  // a new attempt may not build on this state
    cache_.Distrust(held->table);
    held->seals = false;
    if (held->next) return;  // which begins anew
    if (held->after_step == AfterStep::kNothing) {
      Refuse(held->id, Error(Reason::kCorrupt, "the model's logits are no numbers"));
    }
    held->after_step = AfterStep::kDrop;
    return;
  }
  SealComplete(held);
  held->has_first = true;
  held->first = result.tokens[accepted->token_offset];
  held->first_score = accepted->score_offset < 0
                          ? TokenScore()
                          : result.scores[static_cast<size_t>(accepted->score_offset)];
  const auto drafts = result.drafts.begin() + accepted->draft_offset;
  held->drafts.assign(drafts, drafts + accepted->draft_count);
}

void PrefillCore::Impl::AfterStepOf(Held* held) {
  if (held->next) return ApplyNext(held);
  switch (std::exchange(held->after_step, AfterStep::kNothing)) {
    case AfterStep::kDrop: return Drop(held);
    case AfterStep::kRetain: return Retain(held);
    case AfterStep::kNothing: break;
  }
  if (held->computed_all()) {
    FreeSlot(held);
    held->phase = Phase::kComputed;
    pb::PrefillComputed& computed =
        *SendTo(held->id.request.router, out_).mutable_prefill_computed();
    KeyTo(held->id, computed.mutable_key());
    computed.set_rows_computed(held->rows_computed);
    RecordSpan(held, Reason::kOk);
  }
  Offer(held);
}

void PrefillCore::Impl::FreeSlot(Held* held) {
  if (held->slot.value < 0) return;
  WEIR_CHECK(!held->in_step);
  const auto index = static_cast<size_t>(held->slot.value);
  slots_[index] = nullptr;
  views_[index] = SlotView();
  free_slots_.push_back(held->slot);
  held->slot = SlotId(-1);
}

void PrefillCore::Impl::RecordSpan(Held* held, Reason reason) {
  if (!std::exchange(held->trace.sampled, false)) return;
  Span& span = out_->spans.emplace_back();
  span.parent = held->trace.span;
  span.context = DerivedFrom(held->trace, kPrefillSpan);
  span.context.sampled = true;
  span.name = "prefill";
  span.begin = held->arrived;
  span.end = now_;
  span.reason = reason;
  // Where it never got a slot, all of it was waiting.
  const bool waited = held->phase == Phase::kQueued;
  span.attributes[0] = {"weir.tokens", static_cast<int64_t>(held->tokens.size())};
  span.attributes[1] = {"weir.rows", held->rows_computed};
  span.attributes[2] = {"weir.queued_us", Micros((waited ? now_ : held->seated) - held->arrived)};
}

uint64_t PrefillCore::Impl::QueuedTokens() const {
  uint64_t tokens = 0;
  for (const Held* held : queue_) tokens += held->remaining();
  return tokens;
}

}  // namespace weir::engine
