// SPDX-License-Identifier: Apache-2.0
//
// RequestFsm: one request from admission to its last word. States are types; a failure of any kind
// re-enters Matching with the next attempt, whose tokens are prompt plus journal, and there is no
// other way back. Owned by RouterCore, one thread, no clock; it borrows what it needs for one call.
// It cannot fail: what goes wrong ends in another attempt or in a Close action.
#pragma once

#include <variant>
#include <vector>

#include "base/runtime/time.h"
#include "base/stdx/random.h"
#include "router/balance/route.h"
#include "router/fleet/fleet_core.h"
#include "router/match/prefix_index.h"
#include "router/session/router_io.h"
#include "router/session/token_journal.h"

namespace weir::router {

// What a machine needs of its core for the length of a call.
struct FsmContext {
  Instant now;
  InstanceId self;
  uint32_t attempts_max = 3;
  Duration lease{0};
  FleetCore* fleet = nullptr;
  const PrefixIndex* prefixes = nullptr;
  Random* random = nullptr;
  RouterState* counters = nullptr;
  RouterActions* out = nullptr;
};

// Waiting for the next attempt: a pause, or engines that are not there.
struct Matching {
  Instant retry_at = kNever;  // kNever: when the fleet changes
  Instant until = kNever;     // no engine by then: given up
};
// The decode engine was asked for a slot.
struct Reserving {
  Instant answer_until = kNever;  // kNever once it said that we are queued
  bool prefill_sent = false;
};
// A slot is reserved; the prompt is computed or on its way to the decode engine.
struct Prefilling {};
// Ids flow; the prefill engine has done its part.
struct Decoding {};
// Over; the core drops the request.
struct Closing {};

class RequestFsm {
 public:
  using State = std::variant<Matching, Reserving, Prefilling, Decoding, Closing>;

  struct Options {
    RequestId request;
    pb::Sampling sampling;
    Instant deadline = kNever;
    TraceContext trace;
    kv::Domain domain;
  };

  RequestFsm(Options options, TokenJournal journal);

  // Fixes what the fleet's geometry decides (TokenJournal::Bound). Before the first attempt, which
  // does not begin without it.
  void Bound(uint32_t new_tokens_max, uint32_t tail_start, const kv::BlockKey& key_root);
  bool bounded() const { return bounded_; }

  // Begins the first attempt, or waits for engines.
  void Start(const FsmContext& context);

  // Messages of the engines, already known to be about this request. Those of other attempts or
  // from engines that do not serve it change nothing and are answered false.
  bool OnReserved(const FsmContext& context, InstanceId from, const pb::Reserved& message);
  bool OnReserveQueued(const FsmContext& context, InstanceId from, const pb::ReserveQueued& message);
  // ReserveFailed, PrefillFailed and HandoverAbort.
  bool OnFailed(const FsmContext& context, InstanceId from, const pb::RequestKey& key,
                const pb::Failure& failure);
  bool OnRow(const FsmContext& context, InstanceId from, const pb::TokenRow& row);
  bool OnPrefillComputed(const FsmContext& context, InstanceId from, const pb::RequestKey& key);
  // PrefillAccepted: news that change nothing.
  bool Serves(InstanceId from, const pb::RequestKey& key) const;

  void OnPeerLost(const FsmContext& context, InstanceId instance);
  // An engine came, or stopped draining: whoever waits for one tries again.
  void OnFleetGrown(const FsmContext& context);
  // next_time() passed.
  void OnTime(const FsmContext& context);

  // Ends the request without a word to the client: kOk when it has all it wants.
  void Withdraw(const FsmContext& context, Reason why);
  // Ends it with one.
  void Fail(const FsmContext& context, const absl::Status& status);

  const State& state() const { return state_; }
  bool closed() const { return std::holds_alternative<Closing>(state_); }
  const TokenJournal& journal() const { return journal_; }
  const kv::Domain& domain() const { return options_.domain; }
  RequestId request() const { return options_.request; }
  // Engines that may hold something of it; zero where none.
  InstanceId prefill() const { return prefill_; }
  InstanceId decode() const { return decode_; }
  Instant next_time() const;

 private:
  void TryAttempt(const FsmContext& context);
  std::vector<PrefixHit> FindHits(const FsmContext& context) const;
  void SendReserve(const FsmContext& context);
  void SendPrefill(const FsmContext& context, InstanceId sink);
  void OnFailure(const FsmContext& context, InstanceId by, const pb::Failure& failure);
  void OnPreempted(const FsmContext& context);
  void OnLoss(const FsmContext& context, const absl::Status& why);
  void OnRefusal(const FsmContext& context, InstanceId by, const absl::Status& why);
  // The attempt is over; answers false where the request is over with it.
  bool EndAttempt(const FsmContext& context);
  void Deliver(const FsmContext& context, uint32_t first, const pb::TokenRow& row);
  void Finish(const FsmContext& context, pb::FinishReason finish);
  void CancelDecode(const FsmContext& context);
  void Release(const FsmContext& context);
  void Close(const FsmContext& context, pb::FinishReason finish, const absl::Status& status);
  // Spans of the attempt: `part` is kPrefillSpan or kDecodeSpan. Nothing where it is not traced or
  // did not begin.
  TraceContext PartOf(uint64_t part) const;
  void FillTrace(uint64_t part, pb::TraceContext* out) const;
  // The prompt is computed, or the first id says so.
  void PrefillOver(const FsmContext& context);
  void EndPrefillSpan(const FsmContext& context, Reason reason);
  void EndSpans(const FsmContext& context, Reason reason);
  void EndSpan(const FsmContext& context, uint64_t part, Instant* begun, Reason reason);
  void FillKey(const FsmContext& context, pb::RequestKey* key) const;
  bool started() const { return journal_.attempt().value > 0; }

  Options options_;
  TokenJournal journal_;
  State state_ = Matching{};
  bool bounded_ = false;
  kv::BlockKey key_root_;  // of its blocks, once bounded
  uint32_t charged_ = 0;        // tokens that the prefill engine is thought to have ahead
  uint32_t cached_tokens_ = 0;  // of the prompt, as the attempt with the first id found it
  InstanceId prefill_{0};
  InstanceId decode_{0};
  InstanceId avoided_prefill_{0};
  InstanceId avoided_decode_{0};
  Instant absent_since_ = kNever;   // a role has no engine for it
  Instant refused_since_ = kNever;  // engines lack room; across attempts until ids flow
  uint32_t losses_ = 0;             // attempts that count against attempts_max
  uint32_t refusals_ = 0;           // for lack of room, in a row
  uint32_t preemptions_ = 0;
  absl::Status refusal_;  // the last one
  // Of this attempt, for its spans; kNever: not begun, or over.
  Instant prefill_begun_ = kNever;
  Instant decode_begun_ = kNever;
};

}  // namespace weir::router
