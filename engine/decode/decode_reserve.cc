// SPDX-License-Identifier: Apache-2.0
//
// Events, reservations and ends of DecodeCore.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "engine/decode/decode_impl.h"

namespace weir::engine {
namespace {

uint32_t StepRowsMax(const DecodeCore::Config& config) {
  return config.step_rows_max > 0 ? config.step_rows_max
                                  : config.slots * (config.model.draft_max + 1);
}

}  // namespace

DecodeCore::Impl::Impl(Config config)
    : config_(std::move(config)),
      block_tokens_(config_.model.layout.block_tokens()),
      pool_(config_.model.layout, config_.kv),
      scheduler_(config_.slots, StepRowsMax(config_)),
      sequences_(config_.slots),
      views_(config_.slots),
      leases_(size_t{config_.slots} + config_.queue_max + 1),
      deadlines_(size_t{config_.slots} + config_.queue_max + 1),
      keeps_until_(config_.slots) {
  WEIR_CHECK(config_.slots > 0 && config_.slots <= kSlotsMax);
  for (uint32_t i = config_.slots; i > 0; --i) free_slots_.emplace_back(static_cast<int32_t>(i - 1));
  plan_.rows.reserve(config_.slots);
  plan_.tokens.reserve(StepRowsMax(config_));
  turns_.reserve(config_.slots);
  for (Sequence& sequence : sequences_) sequence.drafts.reserve(config_.model.draft_max);
}

void DecodeCore::Impl::On(Instant now, const Event& event, Actions* out) {
  now_ = now;
  out_ = out;
  ExpireDue();
  ExpireKeeps();
  std::visit([this](const auto& e) { Handle(e); }, event);
  // Running sequences grow before new ones are let in.
  Launch();
  Admit();
  if (draining_) FinishDrain();
  reporter_.Consider(now, figures(), counters_, peers_.routers(), out);
  out_ = nullptr;
}

Instant DecodeCore::Impl::NextDeadline() const {
  return std::min({leases_.NextDeadline(), deadlines_.NextDeadline(), reporter_.NextDeadline(),
                   keeps_until_.NextDeadline(), drain_until_});
}

void DecodeCore::Impl::Handle(const PeerUp& event) {
  peers_.Up(event);
  if (event.role == Role::kRouter) reporter_.Hasten();
}

void DecodeCore::Impl::Handle(const PeerDown& event) {
  peers_.Down(event.instance);
  OnSourceDown(event.instance);
}

void DecodeCore::Impl::Handle(const Received& event) {
  const pb::Envelope& m = event.message;
  switch (m.body_case()) {
    case pb::Envelope::kReserve: return OnReserve(m.reserve());
    case pb::Envelope::kRenew: return OnRenew(m.renew());
    case pb::Envelope::kCancel: return OnCancel(KeyFrom(m.cancel().key()));
    case pb::Envelope::kChunkDone: return OnChunkDone(event.from, m.chunk_done());
    case pb::Envelope::kPrefillDone: return OnPrefillDone(event.from, m.prefill_done());
    case pb::Envelope::kKeepDone:
      return OnKeepDone(event.from, KeyFrom(m.keep_done().key()));
    case pb::Envelope::kHandoverAbort:
      return OnHandoverAbort(event.from, KeyFrom(m.handover_abort().key()),
                             ReasonFrom(m.handover_abort().failure()));
    default: ++counters_.orphans;
  }
}

void DecodeCore::Impl::Handle(const DrainRequested& event) {
  draining_ = true;
  drain_until_ = event.deadline;
  reporter_.Hasten();  // routers must know before we are gone, or we count as lost
  while (!queue_.empty()) {
    const AttemptKey id = queue_.front().id;
    Refuse(id, Error(Reason::kNoCapacity, "this engine is draining"));
    ForgetKey(id);
  }
}

uint32_t DecodeCore::Impl::EmitMax(const pb::Reserve& m) const {
  return std::min(m.new_tokens_max(), config_.model.positions_max - m.token_count());
}

uint32_t DecodeCore::Impl::BlocksToReserve(const pb::Reserve& m) const {
  const CacheLayout& layout = config_.model.layout;
  const uint32_t all = layout.BlocksFor(m.token_count() + EmitMax(m));
  if (m.whole()) return all;
  return std::min(all, layout.BlocksFor(m.token_count()) + config_.growth_blocks);
}

absl::Status DecodeCore::Impl::Validate(const pb::Reserve& m) const {
  if (m.token_count() == 0) {
    return Error(Reason::kBadField, "token_count must be positive", "token_count");
  }
  if (m.token_count() >= config_.model.positions_max) {
    return Error(Reason::kTooLong,
                 absl::StrCat("the prompt has ", m.token_count(), " tokens and the model holds ",
                              config_.model.positions_max),
                 "token_count");
  }
  if (m.new_tokens_max() == 0) {
    return Error(Reason::kBadField, "new_tokens_max must be positive", "new_tokens_max");
  }
  if (m.prompt_tokens() == 0 || m.prompt_tokens() > m.token_count()) {
    return Error(Reason::kBadField, "prompt_tokens must be between 1 and token_count",
                 "prompt_tokens");
  }
  if (static_cast<uint32_t>(m.emitted_size()) != m.token_count() - m.prompt_tokens()) {
    return Error(Reason::kBadField, "emitted must hold the tokens after the prompt", "emitted");
  }
  // Penalties index logits by these.
  if (!std::all_of(m.emitted().begin(), m.emitted().end(), [this](TokenId token) {
        return token >= 0 && static_cast<uint32_t>(token) < config_.model.vocab;
      })) {
    return Error(Reason::kBadField, "an emitted token is not in the vocabulary", "emitted");
  }
  if (m.tail_start() >= m.token_count()) {
    return Error(Reason::kBadField, "tail_start must lie within the tokens", "tail_start");
  }
  const uint32_t blocks = config_.model.layout.BlocksFor(m.token_count() + EmitMax(m));
  if (blocks > pool_.TotalBlocks()) {
    return Error(Reason::kTooLong,
                 absl::StrCat("prompt and answer need ", blocks, " blocks and this engine has ",
                              pool_.TotalBlocks()),
                 "new_tokens_max");
  }
  return SamplingFrom(m.sampling(), config_.model.vocab).status();
}

void DecodeCore::Impl::OnReserve(const pb::Reserve& m) {
  const AttemptKey id = KeyFrom(m.key());
  if (const auto found = by_key_.find(id.request); found != by_key_.end()) {
    if (found->second.attempt == id.attempt) return AnswerAgain(found->second);
    if (found->second.attempt > id.attempt && !IsPlanted(Planted::kForgetEpochCheck)) {
      WEIR_REACHED("decode: reservation of an older attempt");
      return;
    }
    WEIR_REACHED("decode: attempt superseded");
    OnCancel({.request = id.request, .attempt = found->second.attempt});
  }
  if (absl::Status status = Validate(m); !status.ok()) return Refuse(id, status);
  if (draining_) return Refuse(id, Error(Reason::kNoCapacity, "this engine is draining"));
  if (queue_.size() >= config_.queue_max) {
    WEIR_REACHED("decode: queue full");
    return Refuse(id, Error(Reason::kQueueFull, "the decode queue is full"));
  }
  queue_.push_back({.id = id,
                    .message = m,
                    .blocks = BlocksToReserve(m),
                    .lease = m.lease_ms() > 0 ? std::min(Millis(m.lease_ms()), kLeaseMax)
                                              : config_.lease,
                    .asked = now_});
  queued_tokens_ += m.token_count();
  by_key_.insert_or_assign(
      id.request, Place{.attempt = id.attempt, .waiting = std::prev(queue_.end())});
  WEIR_CHECK(leases_.Grant(id.request, now_ + queue_.back().lease));
  if (m.deadline_ms() > 0) {
    WEIR_CHECK(deadlines_.Grant(id.request, now_ + Millis(m.deadline_ms())));
  }
  Admit();
  const auto found = by_key_.find(id.request);
  if (found != by_key_.end() && found->second.slot.value < 0) {
    WEIR_REACHED("decode: reservation waits for capacity");
    AnswerAgain(found->second);
  }
}

void DecodeCore::Impl::AnswerAgain(const Place& place) {
  if (place.slot.value >= 0) {
    const Sequence& sequence = *At(place.slot);
    pb::Reserved& reserved = *SendTo(sequence.id.request.router, out_).mutable_reserved();
    KeyTo(sequence.id, reserved.mutable_key());
    reserved.set_slot(place.slot.value);
    return;
  }
  pb::ReserveQueued& queued =
      *SendTo(place.waiting->id.request.router, out_).mutable_reserve_queued();
  KeyTo(place.waiting->id, queued.mutable_key());
  // Exact at the tail, where nearly every question comes from.
  queued.set_ahead(static_cast<uint32_t>(queue_.size() - 1));
}

void DecodeCore::Impl::Refuse(const AttemptKey& id, const absl::Status& status) {
  pb::ReserveFailed& failed = *SendTo(id.request.router, out_).mutable_reserve_failed();
  KeyTo(id, failed.mutable_key());
  FailureTo(status, failed.mutable_failure());
}

void DecodeCore::Impl::Admit() {
  // One block stays free for everybody who may grow; else a newcomer would at once push out another
  // or be pushed out itself. An idle engine sets nothing aside, so whatever fits is let in.
  while (!queue_.empty() && !free_slots_.empty() && pool_.StateFree() &&
         uint64_t{queue_.front().blocks} + growers_ <= pool_.FreeBlocks()) {
    const auto waiting = queue_.begin();
    const SlotId slot = free_slots_.back();
    free_slots_.pop_back();
    Seat(*waiting, slot);
    queued_tokens_ -= waiting->message.token_count();
    Place& place = by_key_.at(waiting->id.request);
    place.slot = slot;
    queue_.erase(waiting);
    place.waiting = {};
    AnswerAgain(place);
  }
}

void DecodeCore::Impl::Seat(const Waiting& waiting, SlotId slot) {
  const pb::Reserve& m = waiting.message;
  Sequence& s = *At(slot);
  WEIR_CHECK(s.phase == Phase::kFree && s.table.empty());
  s.id = waiting.id;
  s.phase = Phase::kReserved;
  s.whole = waiting.blocks >= config_.model.layout.BlocksFor(m.token_count() + EmitMax(m));
  growers_ += s.whole ? 0 : 1;
  s.tell_source = false;
  s.end_reason = Reason::kOk;
  s.order = ++last_order_;
  s.lease = waiting.lease;
  s.trace = TraceFrom(m.trace());
  s.asked = waiting.asked;
  s.offered = s.started = Instant{};
  s.token_count = m.token_count();
  s.cursor = m.token_count();
  s.left = EmitMax(m);
  s.emitted_here = 0;
  s.drafts.clear();
  s.keep_parent.clear();
  s.emitted.reserve(std::min(static_cast<uint32_t>(m.emitted_size()) + s.left,
                             static_cast<uint32_t>(m.emitted_size()) + kEmittedReserve));
  s.emitted.assign(m.emitted().begin(), m.emitted().end());
  s.sampling = *SamplingFrom(m.sampling(), config_.model.vocab);
  // Room for the whole answer, so that growing in a step does not allocate.
  for (auto& pages : s.table.pages) {
    pages.reserve(config_.model.layout.BlocksFor(m.token_count() + s.left));
  }
  WEIR_CHECK(pool_.Grow(waiting.blocks, &s.table));
  if (IsPlanted(Planted::kStaleBlockTable) && s.table.blocks > 1) {
    for (int part = 0; part < kPartCount; ++part) {
      if (!pool_.has(static_cast<Part>(part))) continue;
      pool_.GivePage(part, s.table.pages[part].back());
    }
  }
  s.receiver.Reset(config_.model.layout.BlocksFor(m.token_count()));
  SlotView& view = views_[static_cast<size_t>(slot.value)];
  view.sampling = &s.sampling;
  view.prompt_tokens = m.prompt_tokens();
  view.tail_start = m.tail_start();
  SetView(&s);
}

void DecodeCore::Impl::OnRenew(const pb::Renew& m) {
  for (const pb::RequestKey& key : m.keys()) {
    const auto [request, attempt] = KeyFrom(key);
    const auto found = by_key_.find(request);
    // Another attempt than ours is alive elsewhere; ours may go.
    if (found == by_key_.end() || found->second.attempt != attempt) continue;
    const Place& place = found->second;
    const Duration lease = place.slot.value < 0 ? place.waiting->lease : At(place.slot)->lease;
    (void)leases_.Renew(request, now_ + lease);
  }
}

void DecodeCore::Impl::OnCancel(const AttemptKey& id) {
  const auto found = by_key_.find(id.request);
  if (found == by_key_.end() || found->second.attempt > id.attempt) return;
  ++counters_.cancelled;
  if (found->second.slot.value < 0) {
    WEIR_REACHED("decode: cancelled while queued");
    return ForgetKey(id);
  }
  Sequence* sequence = At(found->second.slot);
  if (!sequence->receiver.fetches().empty()) WEIR_REACHED("decode: cancelled during a fetch");
  End(sequence, pb::FINISH_REASON_UNSPECIFIED, Reason::kCancelled);
}

void DecodeCore::Impl::ForgetKey(const AttemptKey& id) {
  const auto found = by_key_.find(id.request);
  WEIR_CHECK(found != by_key_.end());
  if (found->second.slot.value < 0) {
    queued_tokens_ -= found->second.waiting->message.token_count();
    queue_.erase(found->second.waiting);
  }
  by_key_.erase(found);
  leases_.Release(id.request);
  deadlines_.Release(id.request);
}

void DecodeCore::Impl::End(Sequence* s, pb::FinishReason finish, Reason reason) {
  WEIR_CHECK(s->phase == Phase::kReserved || s->phase == Phase::kRunning);
  if (finish != pb::FINISH_REASON_UNSPECIFIED) {
    out_->tokens.push_back({.key = s->id.request,
                            .attempt = s->id.attempt,
                            .position = s->token_count + s->emitted_here,
                            .id_offset = static_cast<uint32_t>(out_->ids.size()),
                            .finish = finish,
                            .reason = reason});
  }
  if (s->trace.sampled) RecordSpan(*s, reason);
  ForgetKey(s->id);
  growers_ -= s->whole ? 0 : 1;
  if (s->phase == Phase::kRunning) {
    scheduler_.Remove(SlotOf(s));
  } else {
    s->tell_source = s->receiver.bound();
  }
  s->end_reason = reason;
  s->phase = Phase::kEnding;
  ++ending_;
  out_->cancels.insert(out_->cancels.end(), s->receiver.fetches().begin(),
                       s->receiver.fetches().end());
  if (reason == Reason::kOk && finish == pb::FINISH_REASON_UNSPECIFIED) OfferBack(s);
  FreeIfIdle(s);
}

void DecodeCore::Impl::RecordSpan(const Sequence& s, Reason reason) {
  const bool decodes = s.started != Instant{};
  Span& span = out_->spans.emplace_back();
  span.parent = s.trace.span;
  span.context = DerivedFrom(s.trace, decodes ? kDecodeSpan : kHandoverSpan);
  span.end = now_;
  span.reason = reason;
  if (decodes) {
    span.name = "decode";
    span.begin = s.started;
    span.attributes[0] = {"weir.tokens", s.emitted_here};
    return;
  }
  span.name = "hand-over";
  const bool offered = s.offered != Instant{};
  span.begin = offered ? s.offered : s.asked;
  span.attributes[0] = {"weir.tokens", s.token_count};
  // From the request for a slot to the first offer; where none came, all of it was waiting.
  span.attributes[1] = {"weir.queued_us", Micros((offered ? s.offered : now_) - s.asked)};
}

void DecodeCore::Impl::FreeIfIdle(Sequence* s) {
  if (s->phase != Phase::kEnding || s->in_step || s->keeping || !s->receiver.fetches().empty()) {
    return;
  }
  if (s->tell_source) AnswerAbort(s->receiver.source(), s->id, s->end_reason);
  --ending_;
  s->phase = Phase::kFree;
  if (IsPlanted(Planted::kLeakPageOnAbort) && s->end_reason != Reason::kOk) {
    for (auto& pages : s->table.pages) {
      if (!pages.empty()) pages.pop_back();
    }
  }
  pool_.Release(&s->table);
  const SlotId slot = SlotOf(s);
  views_[static_cast<size_t>(slot.value)] = SlotView();
  free_slots_.push_back(slot);
}

void DecodeCore::Impl::GiveUp(const RequestKey& key, Reason reason, std::string_view message) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  if (found->second.slot.value >= 0) {
    return End(At(found->second.slot), pb::FINISH_REASON_FAILED, reason);
  }
  const AttemptKey id = found->second.waiting->id;
  Refuse(id, Error(reason, message));
  ForgetKey(id);
}

void DecodeCore::Impl::ExpireDue() {
  if (leases_.NextDeadline() > now_ && deadlines_.NextDeadline() > now_) return;
  std::vector<RequestKey> keys;
  leases_.Expire(now_, &keys);
  for (const RequestKey& key : keys) {
    WEIR_REACHED("decode: lease expired");
    GiveUp(key, Reason::kLeaseExpired, "nobody renewed the lease");
  }
  keys.clear();
  deadlines_.Expire(now_, &keys);
  for (const RequestKey& key : keys) {
    WEIR_REACHED("decode: deadline passed");
    GiveUp(key, Reason::kDeadline, "the deadline passed");
  }
}

void DecodeCore::Impl::FinishDrain() {
  if (now_ >= drain_until_) {
    drain_until_ = kNever;
    for (Sequence& s : sequences_) {
      if (s.phase != Phase::kReserved && s.phase != Phase::kRunning) continue;
      WEIR_REACHED("decode: moved away at the end of a drain");
      End(&s, pb::FINISH_REASON_PREEMPTED, Reason::kNoCapacity);
    }
    for (Sequence& s : sequences_) {
      if (s.keeping) EndKeep(&s);
    }
  }
  if (free_slots_.size() == config_.slots) out_->drained = true;
}

}  // namespace weir::engine
