// SPDX-License-Identifier: Apache-2.0
#include "router/session/request_fsm.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "kvstore/key/geometry.h"
#include "router/limits.h"

namespace weir::router {
namespace {

uint32_t MillisLeft(Instant now, Instant deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(left, 1, UINT32_MAX));
}

Duration BackoffAfter(uint32_t refusals) {
  const Duration pause = kBackoffFirst * (int64_t{1} << std::min<uint32_t>(refusals, 20));
  return std::min(pause, kBackoffMax);
}

// What an engine may say of a request. Keys, tenants and the client's own will are not its to judge.
Reason ReasonOfEngine(uint32_t number) {
  const Reason reason = ReasonFromNumber(number);
  switch (reason) {
    case Reason::kCancelled:
    case Reason::kNoKey:
    case Reason::kForbidden:
    case Reason::kTenantRate:
      return Reason::kBug;
    default:
      return reason;
  }
}

std::string WhyNoFleet(const FleetView& fleet) {
  std::string why = fleet.WhyNone(Role::kDecode);
  if (why.empty()) why = fleet.WhyNone(Role::kPrefill);
  return why.empty() ? std::string("no engine takes the request") : why;
}

}  // namespace

RequestFsm::RequestFsm(Options options, TokenJournal journal)
    : options_(std::move(options)), journal_(std::move(journal)) {}

void RequestFsm::Bound(uint32_t new_tokens_max, uint32_t tail_start, const kv::BlockKey& key_root) {
  journal_.Bound(new_tokens_max, tail_start);
  key_root_ = key_root;
  bounded_ = true;
}

void RequestFsm::Start(const FsmContext& context) { TryAttempt(context); }

void RequestFsm::TryAttempt(const FsmContext& context) {
  RouteInputs inputs;
  inputs.tokens = static_cast<uint32_t>(journal_.ids().size());
  inputs.tokens_max = journal_.prompt_tokens() + journal_.new_tokens_max();
  inputs.preferred_prefill = prefill_;
  inputs.avoided_prefill = avoided_prefill_;
  inputs.avoided_decode = avoided_decode_;
  const std::vector<PrefixHit> hits = bounded_ ? FindHits(context) : std::vector<PrefixHit>();
  inputs.hits = hits;
  absl::StatusOr<Route> route =
      bounded_ ? ChooseRoute(inputs, context.fleet->view(), context.random)
               : Error(Reason::kNoCapacity, WhyNoFleet(context.fleet->view()));
  if (!route.ok()) {
    if (absent_since_ == kNever) absent_since_ = context.now;
    if (started()) WEIR_REACHED("fsm: running request waits for an engine");
    refusal_ = route.status();
    state_ = Matching{kNever, absent_since_ + (started() ? kWaitRunning : kWaitNew)};
    return;
  }
  absent_since_ = kNever;
  if (started()) WEIR_REACHED("fsm: re-enter matching with journal");
  if (prefill_.value != 0 && prefill_ != route->prefill &&
      context.fleet->view().Find(prefill_) != nullptr) {
    WEIR_REACHED("fsm: prefill moves to another instance");
    auto& send = context.out->sends.emplace_back();
    send.to = prefill_;
    FillKey(context, send.message.mutable_forget()->mutable_key());
  }
  journal_.BeginAttempt(Attempt{journal_.attempt().value + 1});
  context.counters->attempts += 1;
  prefill_ = route->prefill;
  decode_ = route->decode;
  charged_ = inputs.tokens - route->hit_tokens;
  context.fleet->Charge(prefill_, charged_);
  context.fleet->Charge(decode_, inputs.tokens_max);
  SendReserve(context);
  state_ = Reserving{context.now + kReserveAnswer, false};
}

// Where there is a choice. Engines say what they do with a hit; too short a one they leave alone.
std::vector<PrefixHit> RequestFsm::FindHits(const FsmContext& context) const {
  std::vector<PrefixHit> hits;
  const FleetView& fleet = context.fleet->view();
  if (context.prefixes->empty() || fleet.CountOf(Role::kPrefill) < 2) return hits;
  const uint32_t block = context.fleet->geometry()->block_tokens();
  if (block == 0 || journal_.prompt_tokens() <= kv::kHitTokensMin) return hits;
  kv::KeyChain chain(key_root_, block);
  chain.Append(journal_.ids().first((journal_.prompt_tokens() - 1) / block * block));
  for (const InstanceView& instance : fleet.instances()) {
    if (instance.role != Role::kPrefill) continue;
    const uint32_t tokens = context.prefixes->Match(instance.id, chain.keys()) * block;
    if (tokens >= kv::kHitTokensMin) hits.push_back({instance.id, tokens});
  }
  return hits;
}

void RequestFsm::SendReserve(const FsmContext& context) {
  auto& send = context.out->sends.emplace_back();
  send.to = decode_;
  pb::Reserve* reserve = send.message.mutable_reserve();
  FillKey(context, reserve->mutable_key());
  reserve->set_token_count(static_cast<uint32_t>(journal_.ids().size()));
  reserve->set_prompt_tokens(journal_.prompt_tokens());
  reserve->set_tail_start(journal_.tail_start());
  reserve->set_new_tokens_max(journal_.tokens_left());
  *reserve->mutable_sampling() = options_.sampling;
  const auto answer = journal_.answer();
  reserve->mutable_emitted()->Add(answer.begin(), answer.end());
  reserve->set_deadline_ms(MillisLeft(context.now, options_.deadline));
  reserve->set_lease_ms(MillisLeft(Instant{}, Instant{} + context.lease));
  // An answer that was pushed out once asks for all its room, or it would be pushed out again.
  reserve->set_whole(preemptions_ > 0);
  if (!options_.trace.sampled) return;
  FillTrace(kDecodeSpan, reserve->mutable_trace());
  decode_begun_ = context.now;
}

void RequestFsm::SendPrefill(const FsmContext& context, InstanceId sink) {
  auto& send = context.out->sends.emplace_back();
  send.to = prefill_;
  pb::Prefill* prefill = send.message.mutable_prefill();
  FillKey(context, prefill->mutable_key());
  const auto ids = journal_.ids();
  prefill->mutable_tokens()->Add(ids.begin(), ids.end());
  prefill->set_prompt_tokens(journal_.prompt_tokens());
  prefill->set_tail_start(journal_.tail_start());
  *prefill->mutable_sampling() = options_.sampling;
  prefill->set_key_root(key_root_.bytes.data(), key_root_.bytes.size());
  if (const InstanceView* view = context.fleet->view().Find(sink); view != nullptr) {
    prefill->set_sink_instance(sink.value);
    prefill->set_sink_address(view->address);
  }
  prefill->set_deadline_ms(MillisLeft(context.now, options_.deadline));
  prefill->set_lease_ms(MillisLeft(Instant{}, Instant{} + context.lease));
  if (!options_.trace.sampled) return;
  FillTrace(kPrefillSpan, prefill->mutable_trace());
  prefill_begun_ = context.now;
}

bool RequestFsm::OnReserved(const FsmContext& context, InstanceId from,
                            const pb::Reserved& message) {
  auto* reserving = std::get_if<Reserving>(&state_);
  if (reserving == nullptr || from != decode_ || !Serves(from, message.key())) return false;
  if (reserving->prefill_sent) {
    WEIR_REACHED("fsm: attach a reservation to a running prefill");
    auto& send = context.out->sends.emplace_back();
    send.to = prefill_;
    pb::Attach* attach = send.message.mutable_attach();
    FillKey(context, attach->mutable_key());
    attach->set_sink_instance(decode_.value);
    if (const InstanceView* view = context.fleet->view().Find(decode_); view != nullptr) {
      attach->set_sink_address(view->address);
    }
  } else {
    SendPrefill(context, decode_);
  }
  state_ = Prefilling{};
  return true;
}

bool RequestFsm::OnReserveQueued(const FsmContext& context, InstanceId from,
                                 const pb::ReserveQueued& message) {
  auto* reserving = std::get_if<Reserving>(&state_);
  if (reserving == nullptr || from != decode_ || !Serves(from, message.key())) return false;
  reserving->answer_until = kNever;
  if (reserving->prefill_sent) return true;
  WEIR_REACHED("fsm: prefill while the reservation is queued");
  reserving->prefill_sent = true;
  SendPrefill(context, InstanceId{0});
  return true;
}

bool RequestFsm::OnPrefillComputed(const FsmContext& context, InstanceId from,
                                   const pb::RequestKey& key) {
  if (!Serves(from, key)) return false;
  if (from == prefill_) PrefillOver(context);
  return true;
}

bool RequestFsm::OnFailed(const FsmContext& context, InstanceId from, const pb::RequestKey& key,
                          const pb::Failure& failure) {
  if (!Serves(from, key)) return false;
  // Once ids flow the prefill engine has nothing to say any more.
  if (std::holds_alternative<Decoding>(state_) && from != decode_) return false;
  OnFailure(context, from, failure);
  return true;
}

bool RequestFsm::OnRow(const FsmContext& context, InstanceId from, const pb::TokenRow& row) {
  if (from != decode_ || !Serves(from, row.key())) return false;
  if (row.ids_size() > 0) {
    if (!context.fleet->InVocabulary({row.ids().data(), static_cast<size_t>(row.ids_size())})) {
      WEIR_REACHED("fsm: ids outside of the vocabulary");
      avoided_decode_ = decode_;
      OnLoss(context, Error(Reason::kCorrupt, "the decode engine answered with unknown ids"));
      return false;
    }
    const std::span<const TokenId> ids(row.ids().data(), static_cast<size_t>(row.ids_size()));
    // What a later attempt finds is its own doing.
    if (journal_.answer_tokens() == 0) {
      cached_tokens_ = std::min(row.cached_tokens(), journal_.prompt_tokens());
    }
    const auto taken = journal_.Accept(Attempt{row.key().attempt()}, row.position(), ids);
    if (taken.verdict == TokenJournal::Verdict::kGap) {
      OnLoss(context, Error(Reason::kPeerLost, "ids of the answer were lost on their way"));
      return false;
    }
    if (taken.verdict == TokenJournal::Verdict::kTaken) {
      Deliver(context, taken.first, row);
    } else if (row.finish() == pb::FINISH_REASON_UNSPECIFIED) {
      return false;
    }
  }
  if (!std::holds_alternative<Decoding>(state_)) {
    state_ = Decoding{};
    PrefillOver(context);
    refused_since_ = kNever;
    refusals_ = 0;
  }
  switch (row.finish()) {
    case pb::FINISH_REASON_STOP:
    case pb::FINISH_REASON_LENGTH:
      decode_ = InstanceId{0};
      Finish(context, row.finish());
      break;
    case pb::FINISH_REASON_PREEMPTED:
      OnPreempted(context);
      break;
    case pb::FINISH_REASON_FAILED:
      OnFailure(context, from, row.failure());
      break;
    case pb::FINISH_REASON_CANCELLED:
      // Nobody here asked for it: the engine gave the sequence up.
      OnLoss(context, Error(Reason::kLeaseExpired, "the decode engine gave the request up"));
      break;
    case pb::FINISH_REASON_UNSPECIFIED:
      if (journal_.full()) Finish(context, pb::FINISH_REASON_LENGTH);
      break;
    default:
      WEIR_REACHED("fsm: an end that this router does not know");
      avoided_decode_ = decode_;
      OnLoss(context, Error(Reason::kPeerLost, "the decode engine ended the answer in a way that "
                                               "this router does not know"));
      break;
  }
  return true;
}

bool RequestFsm::Serves(InstanceId from, const pb::RequestKey& key) const {
  if (from.value == 0 || (from != decode_ && from != prefill_)) return false;
  return key.attempt() == journal_.attempt().value || IsPlanted(Planted::kForgetEpochCheck);
}

void RequestFsm::OnFailure(const FsmContext& context, InstanceId by, const pb::Failure& failure) {
  const Reason reason = ReasonOfEngine(failure.reason());
  const absl::Status why =
      Error(reason, failure.message().substr(0, kFailureBytesMax), failure.param());
  if (reason == Reason::kNoCapacity || reason == Reason::kQueueFull) {
    OnRefusal(context, by, why);
    return;
  }
  // A prefill engine that lost its sink has kept what it computed: the sink is to blame, unless
  // one was blamed before.
  if (by == prefill_ && reason == Reason::kPeerLost && avoided_decode_.value == 0) {
    WEIR_REACHED("fsm: prefill engine lost its sink");
    avoided_decode_ = decode_;
  } else {
    (by == decode_ ? avoided_decode_ : avoided_prefill_) = by;
  }
  OnLoss(context, why);
}

void RequestFsm::OnPreempted(const FsmContext& context) {
  WEIR_REACHED("fsm: preempted");
  context.counters->preemptions += 1;
  EndSpans(context, Reason::kNoCapacity);
  decode_ = InstanceId{0};
  if (!EndAttempt(context)) return;
  if (++preemptions_ > kPreemptionsMax) {
    Fail(context, Error(Reason::kNoCapacity, "the answer was pushed out of memory too often"));
    return;
  }
  TryAttempt(context);
}

void RequestFsm::OnLoss(const FsmContext& context, const absl::Status& why) {
  context.counters->losses += 1;
  EndSpans(context, ReasonOf(why));
  if (!EndAttempt(context)) return;
  if (!InfoOf(ReasonOf(why)).retry_by_us) {
    WEIR_REACHED("fsm: failure that no attempt can mend");
    Fail(context, why);
    return;
  }
  if (++losses_ >= context.attempts_max) {
    WEIR_REACHED("fsm: attempts exhausted");
    Fail(context, why);
    return;
  }
  if (losses_ > 1 && std::holds_alternative<Reserving>(state_)) {
    // Links often break together and are back together: an attempt is not to be spent on an engine
    // whose own loss is the next thing to be heard.
    WEIR_REACHED("fsm: pause after a second loss without an answer");
    refusal_ = why;
    state_ = Matching{context.now + kLossPause, kNever};
    return;
  }
  TryAttempt(context);
}

void RequestFsm::OnRefusal(const FsmContext& context, InstanceId by, const absl::Status& why) {
  WEIR_REACHED("fsm: refused for lack of room");
  EndSpans(context, ReasonOf(why));
  const bool decode_refused = by == decode_;
  (decode_refused ? avoided_decode_ : avoided_prefill_) = by;
  if (decode_refused) decode_ = InstanceId{0};
  if (!EndAttempt(context)) return;
  refusal_ = why;
  if (refused_since_ == kNever) refused_since_ = context.now;
  const bool running = journal_.answer_tokens() > 0;
  const uint32_t others =
      context.fleet->view().CountOf(decode_refused ? Role::kDecode : Role::kPrefill);
  if (running ? context.now >= refused_since_ + kWaitRunning : refusals_ >= kRefusalsMax) {
    WEIR_REACHED("fsm: refused too often");
    Fail(context, why);
    return;
  }
  if (++refusals_ < others) {
    TryAttempt(context);
    return;
  }
  state_ = Matching{context.now + BackoffAfter(refusals_ - others), kNever};
}

bool RequestFsm::EndAttempt(const FsmContext& context) {
  CancelDecode(context);
  if (started() && journal_.full()) {
    // Only the finish was lost.
    WEIR_REACHED("fsm: attempt ended after its last id");
    Finish(context, pb::FINISH_REASON_LENGTH);
    return false;
  }
  return true;
}

void RequestFsm::OnPeerLost(const FsmContext& context, InstanceId instance) {
  const bool was_decode = instance == decode_;
  const bool was_prefill = instance == prefill_;
  if (was_decode) decode_ = InstanceId{0};
  if (was_prefill) prefill_ = InstanceId{0};
  if (std::holds_alternative<Matching>(state_)) return;
  const bool decoding = std::holds_alternative<Decoding>(state_);
  if (was_decode) {
    if (decoding) {
      WEIR_REACHED("fsm: decode engine lost while ids flow");
    } else {
      WEIR_REACHED("fsm: decode engine lost before the first id");
    }
    OnLoss(context, Error(Reason::kPeerLost, "the decode engine of the request was lost"));
  } else if (was_prefill && !decoding) {
    WEIR_REACHED("fsm: prefill engine lost before the first id");
    OnLoss(context, Error(Reason::kPeerLost, "the prefill engine of the request was lost"));
  }
}

void RequestFsm::OnFleetGrown(const FsmContext& context) {
  const auto* matching = std::get_if<Matching>(&state_);
  if (matching != nullptr && matching->retry_at == kNever) TryAttempt(context);
}

void RequestFsm::OnTime(const FsmContext& context) {
  if (context.now >= options_.deadline) {
    WEIR_REACHED("fsm: deadline passed");
    Fail(context, Error(Reason::kDeadline, "the request's deadline passed before its answer was "
                                           "complete"));
    return;
  }
  if (const auto* matching = std::get_if<Matching>(&state_); matching != nullptr) {
    if (context.now >= matching->until) {
      WEIR_REACHED("fsm: no engine came in time");
      Fail(context, refusal_);
    } else if (context.now >= matching->retry_at) {
      TryAttempt(context);
    }
  } else if (const auto* reserving = std::get_if<Reserving>(&state_);
             reserving != nullptr && context.now >= reserving->answer_until) {
    WEIR_REACHED("fsm: reservation never answered");
    avoided_decode_ = decode_;
    OnLoss(context, Error(Reason::kPeerLost, "the decode engine did not answer"));
  }
}

Instant RequestFsm::next_time() const {
  if (const auto* matching = std::get_if<Matching>(&state_); matching != nullptr) {
    return std::min({options_.deadline, matching->retry_at, matching->until});
  }
  if (const auto* reserving = std::get_if<Reserving>(&state_); reserving != nullptr) {
    return std::min(options_.deadline, reserving->answer_until);
  }
  return options_.deadline;
}

void RequestFsm::Deliver(const FsmContext& context, uint32_t first, const pb::TokenRow& row) {
  const auto fresh = journal_.answer().subspan(first);
  context.counters->tokens_taken += fresh.size();
  if (fresh.empty()) return;
  auto& delivery = context.out->deliveries.emplace_back();
  delivery.request = options_.request;
  delivery.first = first;
  delivery.ids.assign(fresh.begin(), fresh.end());
  delivery.cached_tokens = cached_tokens_;
  if (!options_.sampling.logprobs()) return;
  // One for each id in every delivery, whatever the engine sent: the client's side relies on it.
  // Ids at the front that were there already, and those over the limit at the back, have no place.
  const auto known = static_cast<int>(first + journal_.prompt_tokens() - row.position());
  const bool sent = known >= 0 && row.logprobs_size() == row.ids_size() &&
                    static_cast<size_t>(row.logprobs_size() - known) >= fresh.size();
  if (!sent) WEIR_REACHED("fsm: row without its log-probabilities");
  for (int i = 0; i < static_cast<int>(fresh.size()); ++i) {
    pb::TokenLogprob& score = delivery.logprobs.emplace_back();
    if (sent) {
      score = row.logprobs(known + i);
    } else {
      score.set_logprob(std::numeric_limits<float>::quiet_NaN());
    }
  }
}

void RequestFsm::Finish(const FsmContext& context, pb::FinishReason finish) {
  context.counters->succeeded += 1;
  EndSpans(context, Reason::kOk);
  Release(context);
  Close(context, finish, absl::OkStatus());
}

void RequestFsm::Fail(const FsmContext& context, const absl::Status& status) {
  context.counters->failed += 1;
  EndSpans(context, ReasonOf(status));
  Release(context);
  Close(context, pb::FINISH_REASON_FAILED, status);
}

void RequestFsm::Withdraw(const FsmContext& context, Reason why) {
  EndSpans(context, why);
  Release(context);
  state_ = Closing{};
}

void RequestFsm::Close(const FsmContext& context, pb::FinishReason finish,
                       const absl::Status& status) {
  state_ = Closing{};
  auto& close = context.out->closes.emplace_back();
  close.request = options_.request;
  close.finish = finish;
  close.status = status;
  close.prompt_tokens = journal_.prompt_tokens();
  close.answer_tokens = journal_.answer_tokens();
  close.cached_tokens = cached_tokens_;
  close.attempts = journal_.attempt().value;
}

void RequestFsm::CancelDecode(const FsmContext& context) {
  if (decode_.value == 0) return;
  auto& send = context.out->sends.emplace_back();
  send.to = decode_;
  FillKey(context, send.message.mutable_cancel()->mutable_key());
  decode_ = InstanceId{0};
}

void RequestFsm::Release(const FsmContext& context) {
  CancelDecode(context);
  if (prefill_.value == 0) return;
  auto& send = context.out->sends.emplace_back();
  send.to = prefill_;
  FillKey(context, send.message.mutable_forget()->mutable_key());
  prefill_ = InstanceId{0};
}

TraceContext RequestFsm::PartOf(uint64_t part) const {
  return DerivedFrom(options_.trace,
                     MixInto(MixInto(options_.request.value, journal_.attempt().value), part));
}

void RequestFsm::FillTrace(uint64_t part, pb::TraceContext* out) const {
  const TraceContext context = PartOf(part);
  out->set_trace_hi(context.trace_hi);
  out->set_trace_lo(context.trace_lo);
  out->set_span(context.span);
}

void RequestFsm::PrefillOver(const FsmContext& context) {
  context.fleet->Discharge(prefill_, std::exchange(charged_, 0));
  EndPrefillSpan(context, Reason::kOk);
}

void RequestFsm::EndPrefillSpan(const FsmContext& context, Reason reason) {
  EndSpan(context, kPrefillSpan, &prefill_begun_, reason);
}

void RequestFsm::EndSpans(const FsmContext& context, Reason reason) {
  EndPrefillSpan(context, reason);
  EndSpan(context, kDecodeSpan, &decode_begun_, reason);
}

void RequestFsm::EndSpan(const FsmContext& context, uint64_t part, Instant* begun, Reason reason) {
  if (*begun == kNever) return;
  Span& span = context.out->spans.emplace_back();
  span.context = PartOf(part);
  span.parent = options_.trace.span;
  span.name = part == kPrefillSpan ? "prefill attempt" : "decode attempt";
  span.kind = SpanKind::kClient;
  span.begin = std::exchange(*begun, kNever);
  span.end = context.now;
  span.reason = reason;
  span.attributes[0] = {"weir.attempt", journal_.attempt().value};
}

void RequestFsm::FillKey(const FsmContext& context, pb::RequestKey* key) const {
  key->set_router(context.self.value);
  key->set_request(options_.request.value);
  key->set_attempt(journal_.attempt().value);
}

}  // namespace weir::router
