// SPDX-License-Identifier: Apache-2.0
//
// RouterCore: every decision of a router, from a rendered prompt to the last id of its answer. One
// thread, no clock, lock, socket or text; the shell and the simulator obey its actions. It owns the
// requests and their journals and frees both with the last word about a request. On never fails:
// what is wrong with an event is counted (unknown ids, stale rows) or answered by a Close or a
// HelloRefused. On may not be called from within what performs its actions.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/runtime/core.h"
#include "router/session/request_fsm.h"

namespace weir::router {

class RouterCore {
 public:
  using Event = RouterEvent;
  using Actions = RouterActions;

  struct Config {
    InstanceId self;            // not 0
    uint64_t seed = 1;          // of draws between equal engines
    uint32_t requests_max = 4096;
    uint32_t attempts_max = 3;  // of one request, preemptions and refusals for room not counted
    Duration deadline = std::chrono::seconds(600);
    Duration lease = std::chrono::seconds(30);
    std::string cache_secret;  // of the keys that prefixes are shared by; may be empty
  };

  explicit RouterCore(Config config);
  ~RouterCore();
  RouterCore(const RouterCore&) = delete;
  RouterCore& operator=(const RouterCore&) = delete;

  void On(Instant now, const Event& event, Actions* out);
  Instant NextDeadline() const;

  RouterState state() const;
  const FleetCore& fleet() const { return fleet_; }
  const PrefixIndex& prefixes() const { return prefixes_; }
  // Reloadable settings; running requests keep the deadline they were given.
  void SetTunables(uint32_t attempts_max, Duration deadline);

 private:
  struct Entry;
  using SlotIndex = uint32_t;

  void Handle(const FsmContext& context, const Submit& event);
  void Handle(const FsmContext& context, const Withdraw& event);
  void Handle(const FsmContext& context, const PeerUp& event);
  void Handle(const FsmContext& context, const PeerDown& event);
  void Handle(const FsmContext& context, const Received& event);
  void Handle(const FsmContext& context, const DrainRequested& event);
  void Handle(const FsmContext& context, const Tick& event);

  void OnTokens(const FsmContext& context, InstanceId from, const pb::Tokens& tokens);
  void Disown(const FsmContext& context, InstanceId engine, const pb::RequestKey& key);
  void OnLoad(const FsmContext& context, InstanceId from, const pb::LoadReport& report);
  void LoseInstance(const FsmContext& context, InstanceId instance);
  void FleetGrown(const FsmContext& context);
  void OnRequestMessage(const FsmContext& context, InstanceId from, const pb::Envelope& message);
  absl::Status Admit(std::span<const TokenId> prompt, uint32_t new_tokens_wanted,
                     RequestFsm* fsm) const;
  bool FleetComplete() const;
  void Refuse(const FsmContext& context, RequestId request, const absl::Status& status);
  void SendRenewals(const FsmContext& context);
  void FailAll(const FsmContext& context, const absl::Status& status);

  Entry* Find(const pb::RequestKey& key);
  // Books what an event changed: the request's time, its journal, its end.
  void Settle(Entry* entry);
  void Retime(Entry* entry, Instant when);

  // Constant after construction but for the reloadable part.
  Config config_;

  FleetCore fleet_;
  PrefixIndex prefixes_;
  Random random_;
  RouterState counters_;
  // Requests live in numbered places, so that walks over all are in an order that two runs share.
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<SlotIndex> free_;
  absl::flat_hash_map<uint64_t, SlotIndex> by_request_;
  std::set<std::pair<Instant, SlotIndex>> times_;
  Instant renew_at_ = kNever;
  Instant drain_deadline_ = kNever;
  bool drained_told_ = false;
};

static_assert(Core<RouterCore>);

}  // namespace weir::router
