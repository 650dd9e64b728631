// SPDX-License-Identifier: Apache-2.0
#include "router/session/router_core.h"

#include <algorithm>
#include <string>

#include "base/stdx/check.h"
#include "router/limits.h"

namespace weir::router {
namespace {

// Timers handled in one event; those left are due at once again.
constexpr size_t kTimersPerTick = 256;

const pb::RequestKey* KeyOf(const pb::Envelope& message) {
  switch (message.body_case()) {
    case pb::Envelope::kReserved:
      return &message.reserved().key();
    case pb::Envelope::kReserveQueued:
      return &message.reserve_queued().key();
    case pb::Envelope::kReserveFailed:
      return &message.reserve_failed().key();
    case pb::Envelope::kPrefillAccepted:
      return &message.prefill_accepted().key();
    case pb::Envelope::kPrefillComputed:
      return &message.prefill_computed().key();
    case pb::Envelope::kPrefillFailed:
      return &message.prefill_failed().key();
    case pb::Envelope::kHandoverAbort:
      return &message.handover_abort().key();
    default:
      return nullptr;
  }
}

absl::Status TooLong(uint32_t limit, size_t prompt, uint32_t answer) {
  std::string message = "context_length_exceeded: prompt and answer may be " +
                        std::to_string(limit) + " tokens together, but ";
  if (answer == 0 || prompt >= limit) {
    message += "the prompt alone has " + std::to_string(prompt) + "; shorten it";
  } else {
    message += std::to_string(prompt + answer) + " were asked for (" + std::to_string(prompt) +
               " in the prompt, " + std::to_string(answer) + " for the answer); shorten one";
  }
  // Where the prompt alone leaves no room, asking for less does not help.
  return Error(Reason::kTooLong, message, prompt >= limit ? "prompt" : "max_tokens");
}

}  // namespace

struct RouterCore::Entry {
  Entry(RequestFsm machine, SlotIndex place, uint32_t wanted)
      : fsm(std::move(machine)), index(place), new_tokens_wanted(wanted) {}

  RequestFsm fsm;
  const SlotIndex index;
  const uint32_t new_tokens_wanted;
  Instant booked_time = kNever;  // its place in times_; kNever: none
  size_t booked_tokens = 0;      // its part of counters_.journal_tokens
};

RouterCore::RouterCore(Config config) : config_(std::move(config)), random_(config_.seed) {
  WEIR_CHECK(config_.self.value != 0 && config_.requests_max > 0 && config_.attempts_max > 0);
  WEIR_CHECK(config_.lease > Duration::zero() && config_.deadline > Duration::zero());
}

RouterCore::~RouterCore() = default;

void RouterCore::On(Instant now, const Event& event, Actions* out) {
  const FsmContext context{now,     config_.self, config_.attempts_max, config_.lease, &fleet_,
                           &prefixes_, &random_, &counters_, out};
  std::visit([&](const auto& e) { Handle(context, e); }, event);
  if (counters_.draining && by_request_.empty() && !drained_told_) {
    drained_told_ = true;
    out->drained = true;
  }
}

Instant RouterCore::NextDeadline() const {
  Instant next = renew_at_;
  if (!times_.empty()) next = std::min(next, times_.begin()->first);
  return by_request_.empty() ? kNever : std::min(next, drain_deadline_);
}

void RouterCore::SetTunables(uint32_t attempts_max, Duration deadline) {
  WEIR_CHECK(attempts_max > 0 && deadline > Duration::zero());
  config_.attempts_max = attempts_max;
  config_.deadline = deadline;
}

RouterState RouterCore::state() const {
  RouterState state = counters_;
  state.requests = static_cast<uint32_t>(by_request_.size());
  state.journals = state.requests;
  for (const auto& entry : entries_) {
    if (entry && std::holds_alternative<Matching>(entry->fsm.state())) ++state.queued;
  }
  state.prefill_instances = fleet_.view().CountOf(Role::kPrefill);
  state.decode_instances = fleet_.view().CountOf(Role::kDecode);
  return state;
}

void RouterCore::Handle(const FsmContext& context, const Submit& event) {
  counters_.submitted += 1;
  WEIR_CHECK(!by_request_.contains(event.request.value));
  if (counters_.draining) {
    Refuse(context, event.request, Error(Reason::kNoCapacity, "the server is shutting down"));
    return;
  }
  if (by_request_.size() >= config_.requests_max) {
    WEIR_REACHED("router: table of requests is full");
    Refuse(context, event.request,
           Error(Reason::kQueueFull, "the server already has " +
                                         std::to_string(config_.requests_max) + " requests"));
    return;
  }
  const Duration deadline = event.deadline > Duration::zero()
                                ? std::min(event.deadline, config_.deadline)
                                : config_.deadline;
  RequestFsm fsm({event.request, event.sampling, context.now + deadline, event.trace, event.domain},
                 TokenJournal(event.prompt));
  if (absl::Status admitted = Admit(event.prompt, event.new_tokens_max, &fsm); !admitted.ok()) {
    Refuse(context, event.request, admitted);
    return;
  }
  SlotIndex index;
  if (free_.empty()) {
    index = static_cast<SlotIndex>(entries_.size());
    entries_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  entries_[index] = std::make_unique<Entry>(std::move(fsm), index, event.new_tokens_max);
  by_request_.emplace(event.request.value, index);
  if (renew_at_ == kNever) renew_at_ = context.now + config_.lease / 3;
  Entry* entry = entries_[index].get();
  entry->fsm.Start(context);
  Settle(entry);
}

// Bounds the request where the fleet is known; leaves it unbounded until engines of both roles are
// there. Every later check is the same one again, so nothing that is refused here runs there.
absl::Status RouterCore::Admit(std::span<const TokenId> prompt, uint32_t new_tokens_wanted,
                               RequestFsm* fsm) const {
  if (prompt.empty()) return Error(Reason::kBadField, "prompt has no tokens", "prompt");
  const auto& geometry = fleet_.geometry();
  if (!geometry) return absl::OkStatus();
  if (const auto vocab = static_cast<int64_t>(geometry->vocab()); vocab > 0) {
    for (size_t i = 0; i < prompt.size(); ++i) {
      if (prompt[i] >= 0 && prompt[i] < vocab) continue;
      return Error(Reason::kBadField,
                   "prompt holds the token id " + std::to_string(prompt[i]) + " at place " +
                       std::to_string(i) + ", but ids of this model are 0 to " +
                       std::to_string(vocab - 1),
                   "prompt");
    }
  }
  const bool complete = FleetComplete();
  uint32_t limit = geometry->positions_max() > 0 ? geometry->positions_max() : kPositionsDefault;
  if (complete) {
    limit = std::min({limit, fleet_.view().SequenceTokensMax(Role::kPrefill),
                      fleet_.view().SequenceTokensMax(Role::kDecode)});
  }
  if (prompt.size() >= limit) return TooLong(limit, prompt.size(), new_tokens_wanted);
  const auto room = limit - static_cast<uint32_t>(prompt.size());
  if (new_tokens_wanted > room) return TooLong(limit, prompt.size(), new_tokens_wanted);
  if (!complete) return absl::OkStatus();
  const uint32_t tail_rows = geometry->decoder_tail_rows();
  const auto prompt_tokens = static_cast<uint32_t>(prompt.size());
  const uint32_t tail_start =
      tail_rows > 0 && prompt_tokens > tail_rows ? prompt_tokens - tail_rows : 0;
  const kv::KeySpace space{.model = geometry->model_digest(),
                           .layout = geometry->layout_digest(),
                           .tokenizer = "",  // KV depends on ids alone
                           .adapter = ""};
  fsm->Bound(new_tokens_wanted > 0 ? new_tokens_wanted : room, tail_start,
             kv::DomainRoot(config_.cache_secret, fsm->domain(), space));
  return absl::OkStatus();
}

bool RouterCore::FleetComplete() const {
  return fleet_.view().CountOf(Role::kPrefill) > 0 && fleet_.view().CountOf(Role::kDecode) > 0;
}

void RouterCore::Refuse(const FsmContext& context, RequestId request, const absl::Status& status) {
  counters_.refused += 1;
  auto& close = context.out->closes.emplace_back();
  close.request = request;
  close.finish = pb::FINISH_REASON_FAILED;
  close.status = status;
}

void RouterCore::Handle(const FsmContext& context, const Withdraw& event) {
  const auto found = by_request_.find(event.request.value);
  if (found == by_request_.end()) {
    // Our last word and the shell's crossed.
    WEIR_REACHED("router: withdraw of a request that is over");
    return;
  }
  Entry* entry = entries_[found->second].get();
  (event.satisfied ? counters_.succeeded : counters_.cancelled) += 1;
  entry->fsm.Withdraw(context, event.satisfied ? Reason::kOk : Reason::kCancelled);
  Settle(entry);
}

void RouterCore::Handle(const FsmContext& context, const PeerUp& event) {
  if (fleet_.view().Find(event.instance) != nullptr) LoseInstance(context, event.instance);
  if (fleet_.view().instances().empty() && by_request_.empty()) fleet_.ForgetGeometry();
  if (absl::Status status = fleet_.Register(event.instance, event.hello); !status.ok()) {
    WEIR_REACHED("router: engine refused");
    counters_.hellos_refused += 1;
    auto& send = context.out->sends.emplace_back();
    send.to = event.instance;
    pb::Failure* failure = send.message.mutable_hello_refused()->mutable_failure();
    failure->set_reason(static_cast<uint32_t>(ReasonOf(status)));
    failure->set_message(std::string(status.message()));
    failure->set_param(ParamOf(status));
    return;
  }
  FleetGrown(context);
}

void RouterCore::Handle(const FsmContext& context, const PeerDown& event) {
  LoseInstance(context, event.instance);
}

void RouterCore::LoseInstance(const FsmContext& context, InstanceId instance) {
  prefixes_.Lose(instance);
  if (!fleet_.Lose(instance)) return;
  for (const auto& entry : entries_) {
    if (!entry) continue;
    if (entry->fsm.decode() != instance && entry->fsm.prefill() != instance) continue;
    entry->fsm.OnPeerLost(context, instance);
    Settle(entry.get());
  }
}

void RouterCore::FleetGrown(const FsmContext& context) {
  if (!FleetComplete()) return;
  for (const auto& entry : entries_) {
    if (!entry || !std::holds_alternative<Matching>(entry->fsm.state())) continue;
    absl::Status admitted;
    if (!entry->fsm.bounded()) {
      WEIR_REACHED("router: request waited for the first engines");
      admitted = Admit(entry->fsm.journal().ids(), entry->new_tokens_wanted, &entry->fsm);
    }
    if (admitted.ok()) {
      entry->fsm.OnFleetGrown(context);
    } else {
      entry->fsm.Fail(context, admitted);
    }
    Settle(entry.get());
  }
}

void RouterCore::Handle(const FsmContext& context, const Received& event) {
  if (fleet_.view().Find(event.from) == nullptr) {
    WEIR_REACHED("router: message of an unknown instance");
    counters_.orphans += 1;
    return;
  }
  switch (event.message.body_case()) {
    case pb::Envelope::kCacheEvents:
      if (prefixes_.Apply(event.from, event.message.cache_events())) break;
      context.out->sends.push_back({event.from, pb::Envelope()});
      context.out->sends.back().message.mutable_cache_resync();
      break;
    case pb::Envelope::kTokens:
      OnTokens(context, event.from, event.message.tokens());
      break;
    case pb::Envelope::kLoad:
      OnLoad(context, event.from, event.message.load());
      break;
    default:
      OnRequestMessage(context, event.from, event.message);
      break;
  }
}

void RouterCore::OnTokens(const FsmContext& context, InstanceId from, const pb::Tokens& tokens) {
  for (const pb::TokenRow& row : tokens.rows()) {
    Entry* entry = Find(row.key());
    if (entry == nullptr || !entry->fsm.Serves(from, row.key())) {
      if (row.finish() == pb::FINISH_REASON_UNSPECIFIED) Disown(context, from, row.key());
    }
    if (entry == nullptr) {
      counters_.orphans += 1;
      continue;
    }
    if (!entry->fsm.OnRow(context, from, row)) {
      WEIR_REACHED("router: stale row");
      counters_.tokens_stale += static_cast<uint64_t>(row.ids_size());
    }
    Settle(entry);
  }
}

// An engine whose link was lost for a while goes on with attempts that nobody waits for; the order
// to end them was lost with the link.
void RouterCore::Disown(const FsmContext& context, InstanceId engine, const pb::RequestKey& key) {
  WEIR_REACHED("router: engine works for nobody");
  auto& send = context.out->sends.emplace_back();
  send.to = engine;
  *send.message.mutable_cancel()->mutable_key() = key;
}

void RouterCore::OnLoad(const FsmContext& context, InstanceId from, const pb::LoadReport& report) {
  const Health before = fleet_.view().Find(from)->health;
  fleet_.Report(from, report);
  if (before == Health::kDraining && !report.draining()) FleetGrown(context);
}

void RouterCore::OnRequestMessage(const FsmContext& context, InstanceId from,
                                  const pb::Envelope& message) {
  const pb::RequestKey* key = KeyOf(message);
  Entry* entry = key == nullptr ? nullptr : Find(*key);
  if (message.has_reserved() && (entry == nullptr || !entry->fsm.Serves(from, *key))) {
    Disown(context, from, *key);
  }
  if (entry == nullptr) {
    counters_.orphans += 1;
    return;
  }
  RequestFsm& fsm = entry->fsm;
  bool counted = true;
  switch (message.body_case()) {
    case pb::Envelope::kReserved:
      counted = fsm.OnReserved(context, from, message.reserved());
      break;
    case pb::Envelope::kReserveQueued:
      counted = fsm.OnReserveQueued(context, from, message.reserve_queued());
      break;
    case pb::Envelope::kReserveFailed:
      counted = fsm.OnFailed(context, from, *key, message.reserve_failed().failure());
      break;
    case pb::Envelope::kPrefillComputed:
      counted = fsm.OnPrefillComputed(context, from, *key);
      break;
    case pb::Envelope::kPrefillFailed:
      counted = fsm.OnFailed(context, from, *key, message.prefill_failed().failure());
      break;
    case pb::Envelope::kHandoverAbort:
      counted = fsm.OnFailed(context, from, *key, message.handover_abort().failure());
      break;
    default:
      counted = fsm.Serves(from, *key);
      break;
  }
  if (!counted) WEIR_REACHED("router: stale message");
  Settle(entry);
}

void RouterCore::Handle(const FsmContext& context, const DrainRequested& event) {
  counters_.draining = true;
  drain_deadline_ = std::min(drain_deadline_, event.deadline);
}

void RouterCore::Handle(const FsmContext& context, const Tick& event) {
  if (counters_.draining && context.now >= drain_deadline_) {
    WEIR_REACHED("router: requests left at the drain deadline");
    FailAll(context, Error(Reason::kNoCapacity,
                           "the server shut down before the answer was complete"));
    return;
  }
  for (size_t i = 0; i < kTimersPerTick; ++i) {
    if (times_.empty() || times_.begin()->first > context.now) break;
    Entry* entry = entries_[times_.begin()->second].get();
    entry->fsm.OnTime(context);
    Settle(entry);
  }
  if (context.now >= renew_at_) SendRenewals(context);
}

void RouterCore::SendRenewals(const FsmContext& context) {
  renew_at_ = by_request_.empty() ? kNever : context.now + config_.lease / 3;
  const auto& instances = fleet_.view().instances();
  std::vector<pb::Envelope> messages(instances.size());
  const auto flush = [&](size_t i) {
    auto& send = context.out->sends.emplace_back();
    send.to = instances[i].id;
    send.message.Swap(&messages[i]);
  };
  for (const auto& entry : entries_) {
    if (!entry) continue;
    for (const InstanceId holder : {entry->fsm.decode(), entry->fsm.prefill()}) {
      const InstanceView* view = fleet_.view().Find(holder);
      if (view == nullptr) continue;
      const auto i = static_cast<size_t>(view - instances.data());
      pb::Renew* renew = messages[i].mutable_renew();
      pb::RequestKey* key = renew->add_keys();
      key->set_router(config_.self.value);
      key->set_request(entry->fsm.request().value);
      key->set_attempt(entry->fsm.journal().attempt().value);
      if (static_cast<size_t>(renew->keys_size()) >= kRenewKeysMax) flush(i);
    }
  }
  for (size_t i = 0; i < instances.size(); ++i) {
    if (messages[i].has_renew()) flush(i);
  }
}

void RouterCore::FailAll(const FsmContext& context, const absl::Status& status) {
  for (const auto& entry : entries_) {
    if (!entry) continue;
    entry->fsm.Fail(context, status);
    Settle(entry.get());
  }
}

RouterCore::Entry* RouterCore::Find(const pb::RequestKey& key) {
  if (key.router() != config_.self.value) return nullptr;
  const auto found = by_request_.find(key.request());
  return found == by_request_.end() ? nullptr : entries_[found->second].get();
}

void RouterCore::Settle(Entry* entry) {
  const bool closed = entry->fsm.closed();
  const size_t tokens = closed ? 0 : entry->fsm.journal().ids().size();
  counters_.journal_tokens += tokens - entry->booked_tokens;
  entry->booked_tokens = tokens;
  Retime(entry, closed ? kNever : entry->fsm.next_time());
  if (!closed) return;
  const SlotIndex index = entry->index;
  by_request_.erase(entry->fsm.request().value);
  entries_[index].reset();
  free_.push_back(index);
}

void RouterCore::Retime(Entry* entry, Instant when) {
  if (when == entry->booked_time) return;
  if (entry->booked_time != kNever) times_.erase({entry->booked_time, entry->index});
  entry->booked_time = when;
  if (when != kNever) times_.insert({when, entry->index});
}

}  // namespace weir::router
