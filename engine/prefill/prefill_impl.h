// SPDX-License-Identifier: Apache-2.0
//
// The body of PrefillCore; see prefill_core.h for the contract. Every request is in `current_` (by
// key, at most one attempt of it) or in `closing_`; both own it. Queue and retained list point into
// them. Sources: prefill_requests.cc (what messages do to requests), prefill_steps.cc (admission
// and steps), prefill_reuse.cc (what is shared with other requests), prefill_keep.cc (what comes back for the
// turn after), prefill_handover.cc (what decode
// engines hear and answer), prefill_state.cc (gauges and invariants).
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/cache/prefix_cache.h"
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
  void Handle(const FetchDone& event);
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

  // prefill_reuse.cc
  static kv::Geometry GeometryOf(const Config& config);
  void NameBlocks(Held* held, const std::string& root);
  // Shares what is here of the prefix, and decides from where to compute. The table is empty.
  void AttachPrefix(Held* held);
  void Restart(Held* held);
  void DropState(Held* held);
  void CopyState(const Held& held);
  void SealComplete(Held* held);
  // Gives the pages back, all but what others may reuse.
  void GiveBack(Held* held);
  Grade WorstGrade() const;
  Position SharedTokens(const Held& held) const {
    return static_cast<Position>(held.table.shared.size()) * block_tokens_;
  }
  void TellRouters();
  void SendSnapshot(InstanceId router);

  // prefill_keep.cc
  // Blocks of an answer on their way back.
  struct Keeping {
    AttemptKey id;
    InstanceId from;
    BlockTable table;
    std::vector<TokenId> tokens;  // behind the shared blocks
    std::vector<kv::BlockKey> keys;
    Grade grade = Grade::kExact;
    bool withdrawn = false;  // what is read may be something else by now
  };
  void OnKeepOffer(InstanceId from, const pb::KeepOffer& message);
  bool TakeOffer(const pb::KeepOffer& message, Keeping* keeping);
  void AnswerKeep(const Keeping& keeping);
  // Those of one engine; of one attempt, or all.
  void WithdrawKeeps(InstanceId from, const AttemptKey* id);

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
  // Pages may already belong to the sink, or be copied by it; only its answer tells.
  bool InDoubt(const Held& held) const;
  bool SharesArena(InstanceId instance) const;
  using Closing = std::map<AttemptKey, std::unique_ptr<Held>>::iterator;
  Closing CloseEnded(Closing closing);

  Held* Find(const RequestKey& key);
  uint64_t QueuedTokens() const;  // not yet computed, of requests that wait for a slot
  LoadFigures figures() const;

  const Config config_;
  const uint32_t block_tokens_;
  const kv::Geometry geometry_;
  KvPool pool_;
  PrefixCache cache_;
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

  std::map<FetchId, Keeping> keeping_;
  uint64_t last_fetch_ = 0;

  // Keys that came or went and were not told yet.
  absl::flat_hash_map<uint64_t, bool> news_;
  uint64_t news_number_ = 0;  // of the last message
  Instant news_sent_{};
  Instant news_due_ = kNever;

  // Of the event being handled.
  Instant now_{};
  Actions* out_ = nullptr;
};

}  // namespace weir::engine
