// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "engine/prefill/prefill_impl.h"

namespace weir::engine {
namespace {

size_t RequestsMax(const PrefillCore::Config& config, const KvPool& pool) {
  // Whoever is not queued holds a page.
  return size_t{config.queue_max} + config.slots + pool.TotalBlocks();
}

}  // namespace

PrefillCore::Impl::Impl(Config config)
    : config_(std::move(config)),
      block_tokens_(config_.model.layout.block_tokens()),
      geometry_(GeometryOf(config_)),
      pool_(config_.model.layout, config_.kv),
      cache_(&pool_, config_.window_states),
      scheduler_(config_.chunk_rows),
      leases_(RequestsMax(config_, pool_)),
      deadlines_(RequestsMax(config_, pool_)),
      closing_until_(RequestsMax(config_, pool_)),
      slots_(config_.slots, nullptr),
      views_(config_.slots) {
  WEIR_CHECK(config_.slots > 0 && config_.slots <= kSlotsMax);
  for (uint32_t i = config_.slots; i > 0; --i) free_slots_.emplace_back(static_cast<int32_t>(i - 1));
}

void PrefillCore::Impl::On(Instant now, const Event& event, Actions* out) {
  now_ = now;
  out_ = out;
  ExpireDue();
  std::visit([this](const auto& e) { Handle(e); }, event);
  Admit();
  Launch();
  if (draining_) FinishDrain();
  TellRouters();
  reporter_.Consider(now, figures(), counters_, peers_.routers(), out);
  out_ = nullptr;
}

Instant PrefillCore::Impl::NextDeadline() const {
  return std::min({leases_.NextDeadline(), deadlines_.NextDeadline(), closing_until_.NextDeadline(),
                   reporter_.NextDeadline(), drain_until_, news_due_});
}

void PrefillCore::Impl::Handle(const PeerUp& event) {
  peers_.Up(event);
  dialing_.erase(event.instance);
  if (event.role == Role::kRouter) {
    reporter_.Hasten();
    SendSnapshot(event.instance);
  }
  for (auto& [key, held] : current_) {
    if (held->sender.sink() == event.instance) Offer(held.get());
  }
}

void PrefillCore::Impl::Handle(const PeerDown& event) {
  const bool shares = SharesArena(event.instance);
  peers_.Down(event.instance);
  dialing_.erase(event.instance);
  OnSinkDown(event.instance, shares);
  WithdrawKeeps(event.instance, nullptr);
}

void PrefillCore::Impl::Handle(const Received& event) {
  const pb::Envelope& m = event.message;
  switch (m.body_case()) {
    case pb::Envelope::kPrefill: return OnPrefill(m.prefill());
    case pb::Envelope::kAttach: return OnAttach(m.attach());
    case pb::Envelope::kRenew: return OnRenew(m.renew());
    case pb::Envelope::kForget: return OnForget(KeyFrom(m.forget().key()));
    case pb::Envelope::kCancel: return OnForget(KeyFrom(m.cancel().key()));
    case pb::Envelope::kCacheResync: return SendSnapshot(event.from);
    case pb::Envelope::kKeepOffer: return OnKeepOffer(event.from, m.keep_offer());
    case pb::Envelope::kKeepDone: {
      const AttemptKey id = KeyFrom(m.keep_done().key());
      return WithdrawKeeps(event.from, &id);
    }
    case pb::Envelope::kHandoverDone: return OnHandoverDone(event.from, m.handover_done());
    case pb::Envelope::kHandoverAbort: return OnHandoverAbort(event.from, m.handover_abort());
    default: ++counters_.orphans;
  }
}

void PrefillCore::Impl::Handle(const DrainRequested& event) {
  draining_ = true;
  drain_until_ = event.deadline;
  reporter_.Hasten();  // routers must know before we are gone, or we count as lost
  while (!retained_.empty()) EvictOldestRetained();
}

absl::Status PrefillCore::Impl::Validate(const pb::Prefill& m) const {
  const auto count = static_cast<uint32_t>(m.tokens_size());
  if (count == 0) return Error(Reason::kBadField, "tokens must not be empty", "tokens");
  const uint64_t room = uint64_t{pool_.TotalBlocks()} * block_tokens_;
  const uint64_t limit = std::min<uint64_t>(config_.model.positions_max, room);
  if (count > limit) {
    return Error(Reason::kTooLong,
                 absl::StrCat("the prompt has ", count, " tokens and this engine holds ", limit),
                 "tokens");
  }
  if (m.prompt_tokens() == 0 || m.prompt_tokens() > count) {
    return Error(Reason::kBadField, "prompt_tokens must be between 1 and the number of tokens",
                 "prompt_tokens");
  }
  if (m.tail_start() >= count) {
    return Error(Reason::kBadField, "tail_start must lie within the tokens", "tail_start");
  }
  for (const TokenId token : m.tokens()) {
    if (token < 0 || static_cast<uint32_t>(token) >= config_.model.vocab) {
      return Error(Reason::kBadField, absl::StrCat("token ", token, " is not in the vocabulary"),
                   "tokens");
    }
  }
  return absl::OkStatus();
}

void PrefillCore::Impl::OnPrefill(const pb::Prefill& m) {
  const AttemptKey id = KeyFrom(m.key());
  Held* held = Find(id.request);
  if (held != nullptr) {
    const Attempt known = held->next ? Attempt(held->next->key().attempt()) : held->id.attempt;
    if (id.attempt == known) return;
    if (id.attempt < known && !IsPlanted(Planted::kForgetEpochCheck)) {
      WEIR_REACHED("prefill: message of an older attempt");
      return;
    }
  }
  if (absl::Status status = Validate(m); !status.ok()) {
    Refuse(id, status);
    if (held != nullptr) Drop(held);
    return;
  }
  if (draining_) {
    Refuse(id, Error(Reason::kNoCapacity, "this engine is draining"));
    if (held != nullptr) Drop(held);
    return;
  }
  if (queue_.size() >= config_.queue_max || current_.size() + closing_.size() >=
                                                RequestsMax(config_, pool_)) {
    WEIR_REACHED("prefill: queue full");
    return Refuse(id, Error(Reason::kQueueFull, "the prefill queue is full"));
  }
  if (!queue_.empty() &&
      QueuedTokens() + static_cast<uint64_t>(m.tokens_size()) > config_.queue_tokens_max) {
    WEIR_REACHED("prefill: too many tokens wait");
    return Refuse(id, Error(Reason::kQueueFull, "too many prompt tokens wait for this engine"));
  }
  if (held != nullptr) return Supersede(held, m);
  auto fresh = std::make_unique<Held>();
  held = fresh.get();
  current_.emplace(id.request, std::move(fresh));
  Begin(held, m);
}

void PrefillCore::Impl::Supersede(Held* held, const pb::Prefill& m) {
  WEIR_REACHED("prefill: attempt superseded");
  if (held->in_step || InDoubt(*held)) {
    WEIR_REACHED("prefill: newer attempt waits for a step or an answer");
    held->next = std::make_unique<pb::Prefill>(m);
    if (InDoubt(*held)) AbortSink(held);
    return;
  }
  AbortSink(held);
  Begin(held, m);
}

bool PrefillCore::Impl::Resumable(const Held& held, const pb::Prefill& m) const {
  return held.computed > 0 && held.table.blocks > 0 &&
         held.computed <= static_cast<Position>(m.tokens_size()) &&
         held.tail_start == m.tail_start() && held.prompt_tokens == m.prompt_tokens() &&
         (held.computed < static_cast<Position>(m.tokens_size()) || held.computed_all()) &&
         std::equal(held.tokens.begin(), held.tokens.begin() + held.computed, m.tokens().begin());
}

void PrefillCore::Impl::Begin(Held* held, const pb::Prefill& m) {
  RecordSpan(held, Reason::kCancelled);
  LeaveLists(held);
  held->id = KeyFrom(m.key());
  held->after_step = AfterStep::kNothing;
  held->rows_computed = 0;
  held->trace = TraceFrom(m.trace());
  held->arrived = held->seated = now_;
  held->sender.Detach();
  const bool resumes = Resumable(*held, m);
  if (resumes) {
    WEIR_REACHED("prefill: resumed what was held");
  } else {
    GiveBack(held);
  }
  const auto count = static_cast<Position>(m.tokens_size());
  held->has_first = resumes && held->has_first && held->computed == count;
  held->tokens.assign(m.tokens().begin(), m.tokens().end());
  held->prompt_tokens = m.prompt_tokens();
  held->tail_start = m.tail_start();
  absl::StatusOr<SamplingParams> sampling = SamplingFrom(m.sampling(), config_.model.vocab);
  if (!sampling.ok()) {
    Refuse(held->id, sampling.status());
    return Drop(held);
  }
  held->sampling = *std::move(sampling);
  NameBlocks(held, m.key_root());
  if (!resumes) AttachPrefix(held);
  held->lease = m.lease_ms() > 0 ? std::min(Millis(m.lease_ms()), kLeaseMax) : config_.lease;
  WEIR_CHECK(leases_.Grant(held->id.request, now_ + held->lease));
  deadlines_.Release(held->id.request);
  if (m.deadline_ms() > 0) {
    WEIR_CHECK(deadlines_.Grant(held->id.request, now_ + Millis(m.deadline_ms())));
  }
  pb::PrefillAccepted& accepted =
      *SendTo(held->id.request.router, out_).mutable_prefill_accepted();
  KeyTo(held->id, accepted.mutable_key());
  accepted.set_resumed_at(held->computed);
  if (held->computed_all()) {
    WEIR_REACHED("prefill: nothing to compute, handed over again");
    held->phase = Phase::kComputed;
    KeyTo(held->id, SendTo(held->id.request.router, out_).mutable_prefill_computed()->mutable_key());
    RecordSpan(held, Reason::kOk);
  } else {
    held->phase = Phase::kQueued;
    // A resumed request has waited already.
    held->place = queue_.insert(resumes ? queue_.begin() : queue_.end(), held);
    held->listed = true;
  }
  held->arrival = ++last_arrival_;
  if (m.sink_instance() != 0) AttachSink(held, InstanceId(m.sink_instance()), m.sink_address());
}

void PrefillCore::Impl::OnAttach(const pb::Attach& m) {
  const AttemptKey id = KeyFrom(m.key());
  Held* held = Find(id.request);
  if (held == nullptr) {
    ++counters_.orphans;
    return Refuse(id, Error(Reason::kLeaseExpired, "this engine no longer holds the request"));
  }
  if (held->next && held->next->key().attempt() == id.attempt.value) {
    held->next->set_sink_instance(m.sink_instance());
    held->next->set_sink_address(m.sink_address());
    return;
  }
  if (id.attempt != held->id.attempt && !IsPlanted(Planted::kForgetEpochCheck)) return;
  const InstanceId sink(m.sink_instance());
  if (held->sender.sink() == sink || sink == InstanceId()) return;
  if (held->after_step == AfterStep::kDrop) return;
  if (held->phase == Phase::kRetained) {
    if (!held->computed_all()) {
      return Refuse(id, Error(Reason::kPeerLost, "the attempt had ended before it was attached"));
    }
    WEIR_REACHED("prefill: attached to a retained request");
    LeaveLists(held);
    held->phase = Phase::kComputed;
  }
  if (InDoubt(*held)) {
    WEIR_REACHED("prefill: attach waits for the sink before");
    held->next_attach = std::make_unique<pb::Attach>(m);
    return AbortSink(held);
  }
  WEIR_REACHED("prefill: attached late");
  AbortSink(held);
  AttachSink(held, sink, m.sink_address());
}

void PrefillCore::Impl::OnRenew(const pb::Renew& m) {
  for (const pb::RequestKey& key : m.keys()) {
    Held* held = Find(KeyFrom(key).request);
    if (held != nullptr) (void)leases_.Renew(held->id.request, now_ + held->lease);
  }
}

void PrefillCore::Impl::OnForget(const AttemptKey& id) {
  Held* held = Find(id.request);
  if (held == nullptr) return;
  if (held->phase != Phase::kRetained) ++counters_.cancelled;
  held->next.reset();
  held->next_attach.reset();
  RecordSpan(held, Reason::kCancelled);
  Drop(held);
}

void PrefillCore::Impl::Refuse(const AttemptKey& id, const absl::Status& status) {
  pb::PrefillFailed& failed = *SendTo(id.request.router, out_).mutable_prefill_failed();
  KeyTo(id, failed.mutable_key());
  FailureTo(status, failed.mutable_failure());
}

void PrefillCore::Impl::Fail(Held* held, Reason reason, std::string_view message, AfterStep then) {
  Refuse(held->id, Error(reason, message));
  RecordSpan(held, reason);
  then == AfterStep::kRetain ? Retain(held) : Drop(held);
}

void PrefillCore::Impl::Retain(Held* held) {
  held->sender.Detach();
  if (held->in_step) {
    if (held->after_step == AfterStep::kNothing) held->after_step = AfterStep::kRetain;
    return;
  }
  if (held->computed == 0 || draining_ || config_.retain_max == 0) return Drop(held);
  LeaveLists(held);
  deadlines_.Release(held->id.request);
  held->phase = Phase::kRetained;
  held->place = retained_.insert(retained_.end(), held);
  held->listed = true;
  while (retained_.size() > config_.retain_max) EvictOldestRetained();
}

void PrefillCore::Impl::Drop(Held* held) {
  leases_.Release(held->id.request);
  deadlines_.Release(held->id.request);
  if (held->in_step) {
    WEIR_REACHED("prefill: dropped during a step");
    held->after_step = AfterStep::kDrop;
    AbortSink(held);
    return;
  }
  LeaveLists(held);
  if (!held->sender.offered() || !peers_.IsUp(held->sender.sink())) return Erase(held);
  WEIR_REACHED("prefill: pages wait for the decode engine's answer");
  AbortSink(held);
  held->phase = Phase::kClosing;
  if (const auto twin = closing_.find(held->id); twin != closing_.end()) CloseEnded(twin);
  auto node = current_.extract(held->id.request);
  // A sink of another process only reads, and checksums guard what it reads: a bound suffices.
  if (!InDoubt(*held) && !closing_until_.Grant(held->id, now_ + held->lease)) {
    GiveBack(held);
    return;
  }
  closing_.insert_or_assign(held->id, std::move(node.mapped()));
}

void PrefillCore::Impl::Erase(Held* held) {
  GiveBack(held);
  current_.erase(held->id.request);
}

void PrefillCore::Impl::LeaveLists(Held* held) {
  if (held->listed) (held->phase == Phase::kRetained ? retained_ : queue_).erase(held->place);
  held->listed = false;
  FreeSlot(held);
}

void PrefillCore::Impl::ExpireDue() {
  std::vector<RequestKey> keys;
  leases_.Expire(now_, &keys);
  for (const RequestKey& key : keys) {
    WEIR_REACHED("prefill: lease expired");
    if (Held* held = Find(key)) {
      if (held->phase == Phase::kRetained) {
        Drop(held);
      } else {
        Fail(held, Reason::kLeaseExpired, "nobody renewed the lease", AfterStep::kDrop);
      }
    }
  }
  keys.clear();
  deadlines_.Expire(now_, &keys);
  for (const RequestKey& key : keys) {
    WEIR_REACHED("prefill: deadline passed");
    if (Held* held = Find(key)) {
      Fail(held, Reason::kDeadline, "the deadline passed during prefill", AfterStep::kDrop);
    }
  }
  std::vector<AttemptKey> closed;
  closing_until_.Expire(now_, &closed);
  for (const AttemptKey& id : closed) {
    WEIR_REACHED("prefill: a decode engine never answered");
    if (const auto found = closing_.find(id); found != closing_.end()) CloseEnded(found);
  }
}

void PrefillCore::Impl::FinishDrain() {
  if (now_ >= drain_until_) {
    drain_until_ = kNever;
    std::vector<Held*> left;
    for (auto& [key, held] : current_) {
      if (held->after_step != AfterStep::kDrop) left.push_back(held.get());
    }
    for (Held* held : left) {
      WEIR_REACHED("prefill: given up at the end of a drain");
      Fail(held, Reason::kNoCapacity, "this engine is shutting down", AfterStep::kDrop);
    }
  }
  if (current_.empty() && closing_.empty() && keeping_.empty()) out_->drained = true;
}

HeldRequest* PrefillCore::Impl::Find(const RequestKey& key) {
  const auto found = current_.find(key);
  return found == current_.end() ? nullptr : found->second.get();
}

}  // namespace weir::engine
