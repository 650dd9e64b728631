// SPDX-License-Identifier: Apache-2.0
//
// The body of DecodeCore; see decode_core.h for the contract. Sequences live in their slots,
// waiting reservations in `queue_`; `by_key_` finds the newest attempt of a request in either.
// Sources: decode_reserve.cc (events, reservations, ends), decode_handover.cc (offers and reads),
// decode_keep.cc (what goes back for the turn after),
// decode_steps.cc (plan and commit), decode_state.cc (gauges and invariants).
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/decode/decode_core.h"
#include "engine/decode/decode_sequence.h"
#include "engine/run/peers.h"
#include "engine/sched/decode_scheduler.h"
#include "kvstore/transfer/lease.h"

namespace weir::engine {

class DecodeCore::Impl {
 public:
  explicit Impl(Config config);

  void On(Instant now, const Event& event, Actions* out);
  Instant NextDeadline() const;
  EngineState state() const;
  std::string CheckInvariants() const;
  std::string CheckPages() const;
  std::vector<SequenceInfo> Sequences() const;

 private:
  using Sequence = DecodeSequence;
  using Phase = DecodeSequence::Phase;

  struct Waiting {
    AttemptKey id;
    pb::Reserve message;
    uint32_t blocks = 0;
    Duration lease{};
    Instant asked{};
  };
  // Where the newest attempt of a request is.
  struct Place {
    Attempt attempt;
    SlotId slot{-1};
    std::list<Waiting>::iterator waiting;  // when slot is -1
  };

  // decode_reserve.cc
  void Handle(const PeerUp& event);
  void Handle(const PeerDown& event);
  void Handle(const Received& event);
  void Handle(const DrainRequested& event);
  void Handle(const Tick&) {}
  void OnReserve(const pb::Reserve& message);
  void OnRenew(const pb::Renew& message);
  void OnCancel(const AttemptKey& id);
  absl::Status Validate(const pb::Reserve& message) const;
  uint32_t EmitMax(const pb::Reserve& message) const;
  uint32_t BlocksToReserve(const pb::Reserve& message) const;
  void Refuse(const AttemptKey& id, const absl::Status& status);
  void AnswerAgain(const Place& place);
  void Admit();
  void Seat(const Waiting& waiting, SlotId slot);
  void ExpireDue();
  void GiveUp(const RequestKey& key, Reason reason, std::string_view message);
  void FinishDrain();

  // Ends an attempt: tells the router when there is a finish, and frees the slot once it may.
  void End(Sequence* sequence, pb::FinishReason finish, Reason reason);
  void FreeIfIdle(Sequence* sequence);
  // The hand-over is over, or the answer: whichever it was that ran.
  void RecordSpan(const Sequence& sequence, Reason reason);
  void ForgetKey(const AttemptKey& id);

  // decode_handover.cc
  void Handle(const FetchDone& event);
  void OnChunkDone(InstanceId from, const pb::ChunkDone& message);
  void OnPrefillDone(InstanceId from, const pb::PrefillDone& message);
  void OnHandoverAbort(InstanceId from, const AttemptKey& id, Reason reason);
  void OnSourceDown(InstanceId source);
  // The reserved sequence that a message of a prefill engine is about, or null after answering it.
  Sequence* Receiving(InstanceId from, const AttemptKey& id, bool stays);
  void Fetch(Sequence* sequence);
  void Abort(Sequence* sequence, Reason reason);
  void Start(Sequence* sequence);
  bool Adopt(Sequence* sequence);
  bool AnswersLater(const AttemptKey& id) const;
  void AnswerAbort(InstanceId to, const AttemptKey& id, Reason reason);

  // decode_keep.cc
  void TakeKeepTerms(Sequence* sequence, const pb::PrefillDone& message);
  void OfferBack(Sequence* sequence);
  void OnKeepDone(InstanceId from, const AttemptKey& id);
  void EndKeep(Sequence* sequence);
  void ExpireKeeps();

  // decode_steps.cc
  void Handle(const StepDone& event);
  void Launch();
  void WasteTime();
  void GrowRunning();
  bool GrowOne(Sequence* sequence);
  Sequence* Youngest();
  void AddRows(Sequence* sequence, uint16_t rows);
  void Commit(Sequence* sequence, const StepRow& row, const StepResult& result,
              const Accepted& accepted);
  // Takes one sampled token; false when the answer ends with it.
  bool Take(Sequence* sequence, TokenId token, TokenOut* row);
  void WantRows(Sequence* sequence);
  void SetView(Sequence* sequence);

  SlotId SlotOf(const Sequence* sequence) const {
    return SlotId(static_cast<int32_t>(sequence - sequences_.data()));
  }
  Sequence* At(SlotId slot) { return &sequences_[static_cast<size_t>(slot.value)]; }
  LoadFigures figures() const;

  const Config config_;
  const uint32_t block_tokens_;
  KvPool pool_;
  Peers peers_;
  LoadReporter reporter_;
  DecodeScheduler scheduler_;
  std::vector<Sequence> sequences_;  // by SlotId
  std::vector<SlotView> views_;
  std::vector<SlotId> free_slots_;
  std::list<Waiting> queue_;
  uint64_t queued_tokens_ = 0;
  absl::flat_hash_map<RequestKey, Place> by_key_;
  absl::flat_hash_map<FetchId, SlotId> by_fetch_;
  kv::LeaseTable<RequestKey> leases_;
  kv::LeaseTable<RequestKey> deadlines_;
  kv::LeaseTable<AttemptKey> keeps_until_;
  uint64_t last_fetch_ = 0;
  uint64_t last_step_ = 0;
  uint64_t last_order_ = 0;
  uint32_t ending_ = 0;   // slots in phase kEnding
  uint32_t growers_ = 0;  // sequences, reserved or running, that may need more pages

  StepPlan plan_;
  std::vector<DecodeScheduler::Turn> turns_;
  std::vector<PageRead> reads_;
  std::vector<SlotId> growing_;
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
