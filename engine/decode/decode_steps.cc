// SPDX-License-Identifier: Apache-2.0
//
// Plan and commit of DecodeCore: the hot path. Per step it does work in proportion to the rows of
// the step, never to the length of a context, and in steady state it allocates nothing.
#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "engine/decode/decode_impl.h"

namespace weir::engine {

void DecodeCore::Impl::Launch() {
  if (step_running_ || poisoned_ || scheduler_.size() == 0) return;
  GrowRunning();
  scheduler_.Assign(&turns_);
  if (turns_.empty()) return;
  if (IsPlanted(Planted::kSlowStep)) WasteTime();
  plan_.Clear();
  plan_.step = StepId(++last_step_);
  plan_.slots = views_;
  for (const DecodeScheduler::Turn& turn : turns_) AddRows(At(turn.slot), turn.rows);
  step_running_ = true;
  out_->launch = &plan_;
}

// The planted bug: work on the context, and allocations.
void DecodeCore::Impl::WasteTime() {
  for (const DecodeScheduler::Turn& turn : turns_) {
    std::vector<PageId> pages;
    // Bounded, so that what measures it ends with a figure.
    const Position last = std::min<Position>(At(turn.slot)->cursor, 256);
    for (Position p = 0; p < last; ++p) pages.push_back(static_cast<PageId>(p));
    WEIR_CHECK(!pages.empty());
  }
}

// Everybody gets the page of the next position before anybody gets pages for drafts.
void DecodeCore::Impl::GrowRunning() {
  growing_.clear();
  for (SlotId slot = scheduler_.first(); DecodeScheduler::valid(slot);
       slot = scheduler_.next(slot)) {
    const Sequence* s = At(slot);
    if (s->cursor >= s->capacity) growing_.push_back(slot);
  }
  for (const SlotId slot : growing_) {
    Sequence* s = At(slot);
    if (s->phase != Phase::kRunning) continue;  // it gave way to one before it
    if (GrowOne(s)) {
      WantRows(s);
    } else if (s->phase == Phase::kRunning) {
      scheduler_.Want(slot, 0);
    }
  }
}

bool DecodeCore::Impl::GrowOne(Sequence* s) {
  while (!pool_.Grow(config_.model.layout.BlocksFor(s->cursor + 1), &s->table)) {
    if (ending_ > 0) {
      WEIR_REACHED("decode: a sequence waits for pages under a read");
      return false;
    }
    Sequence* victim = Youngest();
    WEIR_REACHED("decode: preempted");
    ++counters_.preempted;
    End(victim, pb::FINISH_REASON_PREEMPTED, Reason::kNoCapacity);
    if (victim == s) return false;
  }
  s->capacity = s->table.blocks * block_tokens_;
  SetView(s);
  return true;
}

// Sequences that hold pages for their whole answer are left alone: they end, and free all of them.
DecodeSequence* DecodeCore::Impl::Youngest() {
  Sequence* youngest = nullptr;
  for (Sequence& s : sequences_) {
    const bool live = s.phase == Phase::kReserved || s.phase == Phase::kRunning;
    if (!live || s.whole) continue;
    if (youngest == nullptr || s.order > youngest->order) youngest = &s;
  }
  WEIR_CHECK(youngest != nullptr);  // at least the one that asks
  return youngest;
}

void DecodeCore::Impl::AddRows(Sequence* s, uint16_t rows) {
  if (s->cursor + rows > s->capacity) {
    if (pool_.Grow(config_.model.layout.BlocksFor(s->cursor + rows), &s->table)) {
      s->capacity = s->table.blocks * block_tokens_;
      SetView(s);
    } else {
      rows = static_cast<uint16_t>(s->capacity - s->cursor);  // fewer drafts this time
    }
  }
  plan_.rows.push_back({.slot = SlotOf(s),
                        .kind = RowKind::kVerify,
                        .first = s->cursor,
                        .count = rows,
                        .token_offset = static_cast<uint32_t>(plan_.tokens.size()),
                        .sample = true});
  plan_.tokens.push_back(s->last);
  plan_.tokens.insert(plan_.tokens.end(), s->drafts.begin(), s->drafts.begin() + rows - 1);
  s->in_step = true;
}

void DecodeCore::Impl::Handle(const StepDone& event) {
  const StepResult& result = event.result;
  WEIR_CHECK(step_running_ && result.step == plan_.step);
  if (result.health == StepHealth::kPoisoned) {
    WEIR_REACHED("decode: device poisoned");
    poisoned_ = true;
    out_->poisoned = true;
    return;
  }
  step_running_ = false;
  const bool counts = result.health == StepHealth::kOk;
  if (counts) {
    ++counters_.steps;
    WEIR_CHECK(result.accepted.size() == plan_.rows.size());
  } else {
    WEIR_REACHED("decode: void step");
  }
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    const StepRow& row = plan_.rows[i];
    Sequence* s = At(row.slot);
    s->in_step = false;
    if (counts) counters_.rows_computed += row.count;
    if (s->phase == Phase::kEnding) {
      WEIR_REACHED("decode: ended during a step");
      FreeIfIdle(s);
    } else if (counts) {
      WEIR_CHECK(result.accepted[i].slot == row.slot);
      Commit(s, row, result, result.accepted[i]);
    }
  }
}

void DecodeCore::Impl::Commit(Sequence* s, const StepRow& row, const StepResult& result,
                              const Accepted& accepted) {
  WEIR_CHECK(accepted.count >= 1 && accepted.count <= row.count);
  if (result.tokens[accepted.token_offset + accepted.count - 1] < 0) {
    WEIR_REACHED("decode: logits are no numbers");
    return End(s, pb::FINISH_REASON_FAILED, Reason::kCorrupt);
  }
  TokenOut out{.key = s->id.request,
               .attempt = s->id.attempt,
               .position = s->cursor + 1,
               .id_offset = static_cast<uint32_t>(out_->ids.size())};
  bool goes_on = true;
  uint32_t taken = 0;
  for (uint32_t i = 0; i < accepted.count && goes_on; ++i) {
    TokenId token = result.tokens[accepted.token_offset + i];
    if (IsPlanted(Planted::kCommitRejectedDraft) && i + 1 == accepted.count &&
        accepted.count < row.count) {
      token = plan_.tokens[row.token_offset + accepted.count];
    }
    goes_on = Take(s, token, &out);
    ++taken;
  }
  if (accepted.score_offset >= 0) {
    out.score_offset = static_cast<int32_t>(out_->scores.size());
    const auto scores = result.scores.begin() + accepted.score_offset;
    out_->scores.insert(out_->scores.end(), scores, scores + out.id_count);
  }
  out_->tokens.push_back(out);
  s->cursor += taken;
  if (!goes_on) return End(s, pb::FINISH_REASON_UNSPECIFIED, Reason::kOk);
  const auto drafts = result.drafts.begin() + accepted.draft_offset;
  s->drafts.assign(drafts, drafts + std::min<uint32_t>(accepted.draft_count,
                                                       config_.model.draft_max));
  WantRows(s);
  views_[static_cast<size_t>(row.slot.value)].emitted = s->emitted;
}

bool DecodeCore::Impl::Take(Sequence* s, TokenId token, TokenOut* row) {
  const std::vector<TokenId>& stops = s->sampling.stop_tokens;
  if (s->emitted.size() >= s->sampling.min_tokens &&
      std::find(stops.begin(), stops.end(), token) != stops.end()) {
    row->finish = pb::FINISH_REASON_STOP;
    return false;
  }
  out_->ids.push_back(token);
  ++row->id_count;
  s->emitted.push_back(token);
  ++s->emitted_here;
  ++counters_.tokens_emitted;
  s->last = token;
  if (--s->left > 0) return true;
  row->finish = pb::FINISH_REASON_LENGTH;
  return false;
}

// A group of n rows yields up to n tokens, so more rows than tokens left would be wasted.
void DecodeCore::Impl::WantRows(Sequence* s) {
  const uint32_t rows = std::min<uint32_t>(1 + static_cast<uint32_t>(s->drafts.size()), s->left);
  scheduler_.Want(SlotOf(s), static_cast<uint16_t>(rows));
}

void DecodeCore::Impl::SetView(Sequence* s) {
  SlotView& view = views_[static_cast<size_t>(SlotOf(s).value)];
  for (int part = 0; part < kPartCount; ++part) view.pages[part] = s->table.pages[part];
  view.state = s->table.state;
  view.emitted = s->emitted;
}

}  // namespace weir::engine
