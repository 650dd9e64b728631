// SPDX-License-Identifier: Apache-2.0
//
// RequestFsm: one request from admission to its last word. States are types; a failure of any kind
// re-enters Matching with the next attempt, whose tokens are prompt plus journal, and there is no
// other way back. Owned by RouterCore, one thread, no clock; it borrows what it needs for one call.
// It cannot fail: what goes wrong ends in another attempt or in a Close action.
#pragma once

#include <variant>

#include "base/runtime/time.h"
#include "base/stdx/random.h"
#include "router/fleet/fleet_core.h"
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
  };

  RequestFsm(Options options, TokenJournal journal);

  // Begins the first attempt.
  void Start(const FsmContext& context);

  // Messages of the engines, already known to be about this request. Those of other attempts or
  // from engines that do not serve it are dropped; the answer tells whether it counted.
  bool OnReserved(const FsmContext& context, InstanceId from, const pb::Reserved& message);
  bool OnReserveQueued(const FsmContext& context, InstanceId from, const pb::ReserveQueued& message);
  bool OnFailed(const FsmContext& context, InstanceId from, const pb::RequestKey& key,
                const pb::Failure& failure);
  bool OnRow(const FsmContext& context, InstanceId from, const pb::TokenRow& row);

  void OnPeerLost(const FsmContext& context, InstanceId instance);
  // An engine came, or stopped draining: whoever waits for one tries again.
  void OnFleetGrown(const FsmContext& context);
  // A time returned by next_time passed.
  void OnTime(const FsmContext& context);

  // Ends the request without a word to the client.
  void Withdraw(const FsmContext& context);
  // Ends it with one.
  void Fail(const FsmContext& context, const absl::Status& status);

  const State& state() const { return state_; }
  bool closed() const { return std::holds_alternative<Closing>(state_); }
  const TokenJournal& journal() const { return journal_; }
  RequestId request() const { return options_.request; }
  Attempt attempt() const { return journal_.attempt(); }
  // Engines that may hold something of it; zero where none.
  InstanceId prefill() const { return prefill_; }
  InstanceId decode() const { return decode_; }
  Instant next_time() const;

 private:
  void TryAttempt(const FsmContext& context);
  void SendReserve(const FsmContext& context);
  void SendPrefill(const FsmContext& context, bool sink_reserved);
  void EndAttempt(const FsmContext& context, Reason reason, std::string_view why);
  void Refused(const FsmContext& context, Reason reason, InstanceId by);
  void CancelDecode(const FsmContext& context);
  void Release(const FsmContext& context);
  void Finish(const FsmContext& context, pb::FinishReason finish);
  void Deliver(const FsmContext& context, uint32_t first, const pb::TokenRow& row);
  void WaitUntil(const FsmContext& context, Instant retry_at);
  bool Current(InstanceId from, const pb::RequestKey& key) const;
  void FillKey(InstanceId self, pb::RequestKey* key) const;
  uint32_t DeadlineMs(Instant now) const;

  Options options_;
  TokenJournal journal_;
  State state_ = Matching{};
  InstanceId prefill_{0};
  InstanceId decode_{0};
  InstanceId avoided_prefill_{0};
  InstanceId avoided_decode_{0};
  Instant waiting_since_ = kNever;  // for engines or room, across attempts
  uint32_t losses_ = 0;             // attempts that count against attempts_max
  uint32_t refusals_ = 0;           // in a row
  uint32_t preemptions_ = 0;
  absl::Status last_failure_;
};

}  // namespace weir::router
