// SPDX-License-Identifier: Apache-2.0
//
// The body of PrefillCore; see prefill_core.h for the contract. Every request is in `current_` (by
// key, at most one attempt of it) or in `closing_`; both own it. Queue and retained list point into
// them. Sources: prefill_requests.cc (what messages do to requests), prefill_steps.cc (admission
// and steps), prefill_handover.cc (what decode engines hear and answer).
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/prefill/held_request.h"
#include "engine/prefill/prefill_core.h"
#include "engine/run/peers.h"
#include "engine/sched/prefill_scheduler.h"
#include "kvstore/transfer/lease.h"

namespace weir::engine {

class PrefillCore::Impl {
 public:
  explicit Impl(Config config);

  void On(Instant now, const Event& event, Actions* out);
  Instant NextDeadline() const;
  EngineState state() const;
  std::string CheckInvariants() const;
  std::string CheckPages() const;
  std::vector<RequestInfo> Requests() const;

 private:
  using Held = HeldRequest;
  using Phase = HeldRequest::Phase;
  using AfterStep = HeldRequest::AfterStep;

  // prefill_requests.cc
  void Handle(const PeerUp& event);
  void Handle(const PeerDown& event);
  void Handle(const Received& event);
  void Handle(const DrainRequested& event);
  void Handle(const FetchDone&) {}
  void Handle(const Tick&) {}
  void OnPrefill(const pb::Prefill& message);
  void OnAttach(const pb::Attach& message);
  void OnRenew(const pb::Renew& message);
  void OnForget(const AttemptKey& id);
  absl::Status Validate(const pb::Prefill& message) const;
  void Supersede(Held* held, const pb::Prefill& message);
  // Takes the message over into `held` and sends it on its way; what is computed and fits stays.
  void Begin(Held* held, const pb::Prefill& message);
  bool Resumable(const Held& held, const pb::Prefill& message) const;
  void Refuse(const AttemptKey& id, const absl::Status& status);
  // The attempt ends without success. Pages stay for the next one, or go.
  void Fail(Held* held, Reason reason, std::string_view message, AfterStep then);
  void Retain(Held* held);
  // The request is over; frees the pages when nobody can be reading them.
  void Drop(Held* held);
  void Erase(Held* held);
  void LeaveLists(Held* held);
  void ExpireDue();
  void FinishDrain();

  // prefill_steps.cc
  void Handle(const StepDone& event);
  void Admit();
  bool TrySeat(Held* held);
  bool MakeRoom(Held* held, uint32_t blocks);
  void EvictOldestRetained();
  // Takes what was computed away again; the request has to be computed anew.
  void Strip(Held* held);
  Held* YoungestWaiting();
  void Launch();
  void Commit(Held* held, const StepRow& row, const StepResult& result, const Accepted* accepted);
  void AfterStepOf(Held* held);
  void FreeSlot(Held* held);
  // The attempt's computing is over, well or not. Once; later calls do nothing.
  void RecordSpan(Held* held, Reason reason);

  // prefill_handover.cc
  void AttachSink(Held* held, InstanceId sink, const std::string& address);
  void Offer(Held* held);
  void OnHandoverDone(InstanceId from, const pb::HandoverDone& message);
  void OnHandoverAbort(InstanceId from, const pb::HandoverAbort& message);
  void OnSinkDown(InstanceId sink, bool shares_arena);
  void LoseSink(Held* held, bool shares_arena);
  void TakeExchange(Held* held, const pb::HandoverDone& message);
  void ApplyNext(Held* held);
  void AbortSink(Held* held);
  // Pages may already belong to the sink; only its answer tells.
  bool InDoubt(const Held& held) const;
  bool SharesArena(InstanceId instance) const;
  using Closing = std::map<AttemptKey, std::unique_ptr<Held>>::iterator;
  Closing CloseEnded(Closing closing);

  Held* Find(const RequestKey& key);
  uint64_t QueuedTokens() const;  // not yet computed, of requests that wait for a slot
  LoadFigures figures() const;

  const Config config_;
  const uint32_t block_tokens_;
  KvPool pool_;
  Peers peers_;
  LoadReporter reporter_;
  PrefillScheduler scheduler_;
  std::map<RequestKey, std::unique_ptr<Held>> current_;
  std::map<AttemptKey, std::unique_ptr<Held>> closing_;
  std::list<Held*> queue_;
  std::list<Held*> retained_;  // oldest first
  std::set<InstanceId> dialing_;
  kv::LeaseTable<RequestKey> leases_;
  kv::LeaseTable<RequestKey> deadlines_;
  kv::LeaseTable<AttemptKey> closing_until_;

  std::vector<Held*> slots_;  // by SlotId; null when free
  std::vector<SlotId> free_slots_;
  std::vector<SlotView> views_;
  std::vector<PrefillCandidate> candidates_;
  StepPlan plan_;
  uint64_t last_step_ = 0;
  uint64_t last_arrival_ = 0;
  bool step_running_ = false;
  bool poisoned_ = false;
  bool draining_ = false;
  Instant drain_until_ = kNever;
  EngineState counters_;

  // Of the event being handled.
  Instant now_{};
  Actions* out_ = nullptr;
};

}  // namespace weir::engine
