// SPDX-License-Identifier: Apache-2.0
//
// Rules of the decode core that need no prefill engine: the test sends its messages by hand.
#include "engine/decode/decode_core.h"

#include <cmath>
#include <functional>

#include "base/stdx/planted.h"
#include "engine/run/fake_step_model.h"
#include "engine/run/wire.h"
#include "gtest/gtest.h"

namespace weir::engine {
namespace {

constexpr InstanceId kRouter{1};
constexpr InstanceId kPrefill{2};
constexpr InstanceId kPrefill2{3};

AttemptKey Id(uint64_t request, uint32_t attempt = 1) {
  return {.request = {.router = kRouter, .request = RequestId(request)},
          .attempt = Attempt(attempt)};
}

class DecodeCoreTest : public testing::Test {
 protected:
  void Start(PageId pages = 16, uint32_t slots = 4, uint32_t queue = 4) {
    DecodeCore::Config config;
    config.model = FakeModelInfo();
    config.kv = ShareOf(FakeMemory(pages, 16));
    config.slots = slots;
    config.queue_max = queue;
    core_ = std::make_unique<DecodeCore>(config);
    Give(PeerUp{.instance = kRouter, .role = Role::kRouter});
    Give(PeerUp{.instance = kPrefill, .role = Role::kPrefill});
    Give(PeerUp{.instance = kPrefill2, .role = Role::kPrefill});
  }

  template <class E>
  void Give(const E& event) {
    out_.Clear();
    core_->On(now_, EngineEvent(event), &out_);
    if (out_.launch != nullptr) plan_ = out_.launch;
    EXPECT_EQ(core_->CheckPages(), "");
  }
  void Deliver(const pb::Envelope& m, InstanceId from = kRouter) {
    Give(Received{.from = from, .message = m});
  }
  void Pass(Duration duration) {
    now_ += duration;
    Give(Tick{});
  }

  void Reserve(AttemptKey id, uint32_t tokens, uint32_t new_max,
               const std::function<void(pb::Reserve*)>& edit = nullptr) {
    pb::Envelope m;
    KeyTo(id, m.mutable_reserve()->mutable_key());
    m.mutable_reserve()->set_token_count(tokens);
    m.mutable_reserve()->set_prompt_tokens(tokens);
    m.mutable_reserve()->set_new_tokens_max(new_max);
    if (edit) edit(m.mutable_reserve());
    Deliver(m);
  }
  void Cancel(AttemptKey id) {
    pb::Envelope m;
    KeyTo(id, m.mutable_cancel()->mutable_key());
    Deliver(m);
  }
  void Chunk(AttemptKey id, uint32_t first, uint32_t count, InstanceId from = kPrefill) {
    pb::Envelope m;
    KeyTo(id, m.mutable_chunk_done()->mutable_key());
    m.mutable_chunk_done()->set_first_block(first);
    for (uint32_t i = 0; i < count; ++i) {
      m.mutable_chunk_done()->add_encoder_pages(static_cast<PageId>(100 + first + i));
      m.mutable_chunk_done()->add_decoder_pages(static_cast<PageId>(200 + first + i));
    }
    Deliver(m, from);
  }
  void Done(AttemptKey id, uint32_t tokens, InstanceId from = kPrefill) {
    pb::Envelope m;
    KeyTo(id, m.mutable_prefill_done()->mutable_key());
    m.mutable_prefill_done()->set_token_count(tokens);
    m.mutable_prefill_done()->set_block_count((tokens + kFakeBlock - 1) / kFakeBlock);
    m.mutable_prefill_done()->set_state_page(9);
    m.mutable_prefill_done()->set_first_token(7);
    Deliver(m, from);
  }
  // Every read of the last event ends, with `reason`.
  void EndFetches(const std::vector<Fetch>& fetches, Reason reason = Reason::kOk) {
    for (const Fetch& fetch : std::vector<Fetch>(fetches)) {
      Give(FetchDone{.fetch = fetch.id, .reason = reason});
    }
  }
  void Run(AttemptKey id, uint32_t tokens) {
    Chunk(id, 0, (tokens + kFakeBlock - 1) / kFakeBlock);
    EndFetches(out_.fetches);
    Done(id, tokens);
    EndFetches(out_.fetches);
  }
  // The running step answers one token everywhere.
  void EndStep(StepHealth health = StepHealth::kOk, TokenId token = 5) {
    ASSERT_NE(plan_, nullptr);
    StepResult result;
    result.step = plan_->step;
    result.health = health;
    for (const StepRow& row : plan_->rows) {
      result.accepted.push_back({.slot = row.slot,
                                 .count = 1,
                                 .token_offset = static_cast<uint32_t>(result.tokens.size())});
      result.tokens.push_back(token);
    }
    plan_ = nullptr;
    Give(StepDone{.result = result});
  }

  const pb::Envelope* Sent(pb::Envelope::BodyCase kind) const {
    for (const auto& send : out_.sends) {
      if (send.message.body_case() == kind) return &send.message;
    }
    return nullptr;
  }
  Reason Refused() const {
    const pb::Envelope* m = Sent(pb::Envelope::kReserveFailed);
    return m == nullptr ? Reason::kOk : ReasonFrom(m->reserve_failed().failure());
  }

  Instant now_{Millis(1000)};
  std::unique_ptr<DecodeCore> core_;
  EngineActions out_;
  const StepPlan* plan_ = nullptr;
};

TEST_F(DecodeCoreTest, ReservesQueuesAndRefuses) {
  Start(16, 1, 2);
  Reserve(Id(1), 8, 8);
  ASSERT_NE(Sent(pb::Envelope::kReserved), nullptr);
  Reserve(Id(2), 8, 8);
  ASSERT_NE(Sent(pb::Envelope::kReserveQueued), nullptr);
  Reserve(Id(3), 8, 8);
  EXPECT_EQ(Sent(pb::Envelope::kReserveQueued)->reserve_queued().ahead(), 1u);
  Reserve(Id(4), 8, 8);
  EXPECT_EQ(Refused(), Reason::kQueueFull);
  Reserve(Id(2), 8, 8);
  EXPECT_NE(Sent(pb::Envelope::kReserveQueued), nullptr) << "asking again changes nothing";
  EXPECT_EQ(core_->state().queued, 2u);
  Cancel(Id(1));
  EXPECT_EQ(KeyFrom(Sent(pb::Envelope::kReserved)->reserved().key()), Id(2)) << "first come";
}

TEST_F(DecodeCoreTest, WhatFitsThePoolIsLetInAndWhatDoesNotIsRefusedAtOnce) {
  for (const auto& [tokens, fits] : {std::pair{63u, true}, {64u, true}, {65u, false}}) {
    Start(16);
    Reserve(Id(1), tokens - 4, 4);
    EXPECT_EQ(Sent(pb::Envelope::kReserved) != nullptr, fits) << tokens;
    EXPECT_EQ(Refused(), fits ? Reason::kOk : Reason::kTooLong) << tokens;
  }
  Start(16);
  Reserve(Id(1), 4096, 1);
  EXPECT_EQ(Refused(), Reason::kTooLong) << "no position is left for an answer";
}

TEST_F(DecodeCoreTest, RefusesBadFieldsByName) {
  Start();
  const std::pair<const char*, std::function<void(pb::Reserve*)>> cases[] = {
      {"token_count", [](pb::Reserve* m) { m->set_token_count(0); }},
      {"new_tokens_max", [](pb::Reserve* m) { m->set_new_tokens_max(0); }},
      {"prompt_tokens", [](pb::Reserve* m) { m->set_prompt_tokens(9); }},
      {"emitted", [](pb::Reserve* m) { m->add_emitted(1); }},
      {"emitted",
       [](pb::Reserve* m) {
         m->set_prompt_tokens(7);
         m->add_emitted(static_cast<TokenId>(kFakeVocab));
       }},
      {"tail_start", [](pb::Reserve* m) { m->set_tail_start(8); }},
      {"temperature", [](pb::Reserve* m) { m->mutable_sampling()->set_temperature(-1); }},
      {"top_p", [](pb::Reserve* m) { m->mutable_sampling()->set_top_p(NAN); }},
      {"stop_tokens", [](pb::Reserve* m) { m->mutable_sampling()->add_stop_tokens(5000); }},
  };
  for (const auto& [param, edit] : cases) {
    Reserve(Id(1), 8, 8, edit);
    EXPECT_EQ(Refused(), Reason::kBadField) << param;
    EXPECT_EQ(Sent(pb::Envelope::kReserveFailed)->reserve_failed().failure().param(), param);
  }
  EXPECT_EQ(core_->state().leases, 0u);
}

TEST_F(DecodeCoreTest, D01_ReservationsOfALostPrefillEndWithTheirLease) {
  Start();
  for (uint64_t i = 1; i <= 3; ++i) {
    Reserve(Id(i), 8, 8, [](pb::Reserve* m) { m->set_lease_ms(5000); });
  }
  EXPECT_EQ(core_->NextDeadline(), now_ + Millis(50)) << "the load report";
  Pass(Millis(4999));
  EXPECT_EQ(core_->state().slots_used, 3u);
  Pass(Millis(1));
  EXPECT_EQ(core_->state().slots_used, 0u);
  EXPECT_EQ(core_->state().pages_used[0], 0u);
  ASSERT_EQ(out_.tokens.size(), 3u);
  EXPECT_EQ(out_.tokens[0].reason, Reason::kLeaseExpired);
}

TEST_F(DecodeCoreTest, D02_D07_PagesOfACancelledReadAreFreeOnlyWhenTheReadHasEnded) {
  Start();
  Reserve(Id(1), 16, 8);
  Chunk(Id(1), 0, 4);
  ASSERT_EQ(out_.fetches.size(), 1u);
  const auto fetches = out_.fetches;
  Cancel(Id(1));
  EXPECT_EQ(out_.cancels, std::vector<FetchId>{fetches[0].id});
  EXPECT_GT(core_->state().pages_used[0], 0u);
  EXPECT_EQ(Sent(pb::Envelope::kHandoverAbort), nullptr) << "we may still be reading";
  Give(FetchDone{.fetch = fetches[0].id, .reason = Reason::kCancelled});
  EXPECT_EQ(core_->state().pages_used[0], 0u);
  EXPECT_NE(Sent(pb::Envelope::kHandoverAbort), nullptr);
}

TEST_F(DecodeCoreTest, D08_LateAndRepeatedCompletionsAreCountedAndDropped) {
  Start();
  Reserve(Id(1), 16, 8);
  Chunk(Id(1), 0, 4);
  const auto fetches = out_.fetches;
  Cancel(Id(1));
  Give(FetchDone{.fetch = fetches[0].id});
  Give(FetchDone{.fetch = fetches[0].id});
  Give(FetchDone{.fetch = FetchId(999)});
  EXPECT_EQ(core_->state().orphans, 2u);
}

TEST_F(DecodeCoreTest, D09_OffersForUnknownSequencesAreAnsweredAndLeaveNothing) {
  Start();
  for (uint64_t i = 0; i < 1000; ++i) {
    Chunk(Id(100 + i), 0, 4);
    EXPECT_NE(Sent(pb::Envelope::kHandoverAbort), nullptr);
  }
  EXPECT_EQ(core_->state().orphans, 1000u);
  EXPECT_EQ(core_->state().leases, 0u);
}

TEST_F(DecodeCoreTest, D10_AFailedReadEndsTheAttempt) {
  Start();
  Reserve(Id(1), 16, 8);
  Chunk(Id(1), 0, 4);
  EndFetches(out_.fetches, Reason::kCorrupt);
  ASSERT_EQ(out_.tokens.size(), 1u);
  EXPECT_EQ(out_.tokens[0].finish, pb::FINISH_REASON_FAILED);
  EXPECT_EQ(out_.tokens[0].reason, Reason::kCorrupt);
  EXPECT_NE(Sent(pb::Envelope::kHandoverAbort), nullptr);
  EXPECT_EQ(core_->state().slots_used, 0u);
}

TEST_F(DecodeCoreTest, D17_SequencesThatGaveWayMayBeCancelledAndTheRestGoOn) {
  Start(12, 4);
  for (uint64_t i = 1; i <= 2; ++i) {
    Reserve(Id(i), 4, 36);
    Run(Id(i), 4);
  }
  bool preempted = false;
  for (int step = 0; step < 100 && plan_ != nullptr; ++step) {
    EndStep();
    for (const TokenOut& row : out_.tokens) {
      if (row.finish != pb::FINISH_REASON_PREEMPTED) continue;
      EXPECT_EQ(row.key, Id(2).request) << "the youngest";
      preempted = true;
      Cancel(Id(2));
    }
  }
  EXPECT_TRUE(preempted);
  EXPECT_EQ(core_->state().slots_used, 0u);
  EXPECT_GE(core_->state().tokens_emitted, 36u);
}

TEST_F(DecodeCoreTest, D18_CancelOfQueuedReservations) {
  Start(16, 1, 10);
  Reserve(Id(1), 8, 8);
  Run(Id(1), 8);
  for (uint64_t i = 2; i <= 11; ++i) Reserve(Id(i), 8, 8);
  for (uint64_t i = 2; i <= 11; ++i) Cancel(Id(i));
  EXPECT_EQ(core_->state().queued, 0u);
  EndStep();
  EXPECT_EQ(out_.tokens.size(), 1u) << "the running one is unaffected";
}

TEST_F(DecodeCoreTest, OlderAttemptsAreDroppedAndNewerOnesSupersede) {
  Start();
  Reserve(Id(1, 2), 8, 8);
  Reserve(Id(1, 1), 8, 8);
  EXPECT_EQ(Sent(pb::Envelope::kReserved), nullptr);
  Cancel(Id(1, 1));
  EXPECT_EQ(core_->state().slots_used, 1u) << "a cancel of an older attempt";
  Chunk(Id(1, 1), 0, 2);
  EXPECT_TRUE(out_.fetches.empty());
  Chunk(Id(1, 2), 0, 2);
  const auto fetches = out_.fetches;
  Reserve(Id(1, 3), 8, 8);
  EXPECT_NE(Sent(pb::Envelope::kReserved), nullptr);
  EXPECT_TRUE(out_.tokens.empty()) << "nobody waits for a finish of the older attempt";
  EXPECT_EQ(core_->state().slots_used, 2u) << "the older attempt waits for its read";
  EndFetches(fetches, Reason::kCancelled);
  EXPECT_EQ(core_->state().slots_used, 1u);
}

TEST_F(DecodeCoreTest, EveryBlockIsReadOnce) {
  Start();
  Reserve(Id(1), 16, 8);
  Chunk(Id(1), 0, 2);
  EXPECT_EQ(out_.fetches[0].reads.size(), 4u);
  auto fetches = out_.fetches;
  Chunk(Id(1), 0, 3);
  EXPECT_EQ(out_.fetches[0].reads.size(), 2u) << "one new block, two parts";
  EndFetches(fetches);
  Done(Id(1), 16);
  EXPECT_EQ(out_.tokens.size(), 1u) << "block 3 was never offered";
  EXPECT_EQ(out_.tokens[0].reason, Reason::kBug);
}

TEST_F(DecodeCoreTest, MalformedOffersEndTheAttempt) {
  const std::function<void(pb::ChunkDone*)> cases[] = {
      [](pb::ChunkDone* m) { m->set_first_block(0xffffffff); },
      [](pb::ChunkDone* m) { m->add_decoder_pages(1); },
      [](pb::ChunkDone* m) { m->clear_encoder_pages(); },
      [](pb::ChunkDone* m) { m->add_encoder_crcs(1); },
  };
  for (const auto& edit : cases) {
    Start();
    Reserve(Id(1), 16, 8);
    pb::Envelope m;
    KeyTo(Id(1), m.mutable_chunk_done()->mutable_key());
    for (int i = 0; i < 2; ++i) {
      m.mutable_chunk_done()->add_encoder_pages(i);
      m.mutable_chunk_done()->add_decoder_pages(i);
    }
    edit(m.mutable_chunk_done());
    Deliver(m, kPrefill);
    ASSERT_EQ(out_.tokens.size(), 1u);
    EXPECT_EQ(out_.tokens[0].finish, pb::FINISH_REASON_FAILED);
    EXPECT_TRUE(out_.fetches.empty());
  }
}

TEST_F(DecodeCoreTest, APrefillEngineThatIsGoneFailsItsHandOversOnly) {
  Start();
  Reserve(Id(1), 8, 8);
  Run(Id(1), 8);
  Reserve(Id(2), 8, 8);
  Chunk(Id(2), 0, 1);
  const auto fetches = out_.fetches;
  Reserve(Id(3), 8, 8);
  Chunk(Id(3), 0, 1, kPrefill2);
  Give(PeerDown{.instance = kPrefill});
  ASSERT_EQ(out_.tokens.size(), 1u);
  EXPECT_EQ(out_.tokens[0].key, Id(2).request);
  EXPECT_EQ(out_.tokens[0].reason, Reason::kPeerLost);
  EndFetches(fetches, Reason::kPeerLost);
  EXPECT_EQ(core_->state().slots_used, 2u);
}

TEST_F(DecodeCoreTest, CancelDuringAStepFreesAfterTheStep) {
  Start();
  Reserve(Id(1), 8, 8);
  Run(Id(1), 8);
  ASSERT_NE(plan_, nullptr);
  Cancel(Id(1));
  EXPECT_EQ(core_->state().slots_used, 1u);
  EndStep();
  EXPECT_TRUE(out_.tokens.empty());
  EXPECT_EQ(core_->state().slots_used, 0u);
}

TEST_F(DecodeCoreTest, VoidStepsRunAgainAndAPoisonedDeviceEndsTheEngine) {
  Start();
  Reserve(Id(1), 8, 8);
  Run(Id(1), 8);
  const StepRow before = plan_->rows[0];
  EndStep(StepHealth::kVoid);
  ASSERT_NE(plan_, nullptr);
  EXPECT_EQ(plan_->rows[0].first, before.first);
  EXPECT_TRUE(out_.tokens.empty());
  EndStep(StepHealth::kPoisoned);
  EXPECT_TRUE(out_.poisoned);
  EXPECT_EQ(plan_, nullptr);
}

TEST_F(DecodeCoreTest, LogitsThatAreNoNumbersFailTheSequence) {
  Start(16, 1);
  Reserve(Id(1), 8, 8);
  Run(Id(1), 8);
  EndStep(StepHealth::kOk, -1);
  ASSERT_EQ(out_.tokens.size(), 1u);
  EXPECT_EQ(out_.tokens[0].finish, pb::FINISH_REASON_FAILED);
  EXPECT_EQ(out_.tokens[0].reason, Reason::kCorrupt);
  EXPECT_EQ(out_.tokens[0].position, 9u);
  EXPECT_TRUE(out_.ids.empty());
  EXPECT_EQ(core_->state().slots_used, 0u);
}

TEST_F(DecodeCoreTest, DeadlinesEndQueuedAndRunningAlike) {
  Start(16, 1);
  const auto soon = [](pb::Reserve* m) { m->set_deadline_ms(100); };
  Reserve(Id(1), 8, 8, soon);
  Run(Id(1), 8);
  Reserve(Id(2), 8, 8, soon);
  Pass(Millis(100));
  EXPECT_EQ(Refused(), Reason::kDeadline);
  ASSERT_EQ(out_.tokens.size(), 1u);
  EXPECT_EQ(out_.tokens[0].reason, Reason::kDeadline);
  EXPECT_EQ(out_.tokens[0].position, 9u) << "after the first token";
}

TEST_F(DecodeCoreTest, ReportsItsLoadOnChangeAndEverySecond) {
  Start();
  Pass(Millis(2000));
  ASSERT_NE(Sent(pb::Envelope::kLoad), nullptr);
  Reserve(Id(1), 8, 8);
  EXPECT_EQ(Sent(pb::Envelope::kLoad), nullptr);
  EXPECT_EQ(core_->NextDeadline(), now_ + Millis(50));
  Pass(Millis(50));
  ASSERT_NE(Sent(pb::Envelope::kLoad), nullptr);
  EXPECT_EQ(Sent(pb::Envelope::kLoad)->load().slots_used(), 1u);
  EXPECT_EQ(core_->NextDeadline(), now_ + Millis(1000));
}

TEST_F(DecodeCoreTest, LogprobsComeWithEveryToken) {
  Start();
  Reserve(Id(1), 8, 8, [](pb::Reserve* m) { m->mutable_sampling()->set_logprobs(true); });
  Run(Id(1), 8);
  ASSERT_EQ(out_.tokens.size(), 1u);
  EXPECT_EQ(out_.tokens[0].score_offset, 0) << "D16: the first token too";
  EXPECT_EQ(out_.scores.size(), 1u);
}

TEST_F(DecodeCoreTest, PlantedBugsShowInTheAccounts) {
  g_planted = static_cast<int>(Planted::kLeaseNeverExpires);
  Start();
  Reserve(Id(1), 8, 8);
  Pass(Millis(100000));
  EXPECT_EQ(core_->state().slots_used, 1u);
  g_planted = static_cast<int>(Planted::kForgetEpochCheck);
  Start();
  Reserve(Id(1, 2), 8, 8);
  Chunk(Id(1, 1), 0, 2);
  EXPECT_FALSE(out_.fetches.empty());
  g_planted = 0;
  for (const Planted bug : {Planted::kLeakPageOnAbort, Planted::kStaleBlockTable}) {
    Start();
    g_planted = static_cast<int>(bug);
    pb::Envelope m;
    const auto silently = [&](const pb::Envelope& e) {
      out_.Clear();
      core_->On(now_, EngineEvent(Received{.from = kRouter, .message = e}), &out_);
    };
    KeyTo(Id(1), m.mutable_reserve()->mutable_key());
    m.mutable_reserve()->set_token_count(8);
    m.mutable_reserve()->set_prompt_tokens(8);
    m.mutable_reserve()->set_new_tokens_max(8);
    silently(m);
    const bool seen = !core_->CheckInvariants().empty();
    KeyTo(Id(1), m.mutable_cancel()->mutable_key());
    silently(m);
    EXPECT_TRUE(seen || !core_->CheckInvariants().empty()) << static_cast<int>(bug);
    g_planted = 0;
  }
}

}  // namespace
}  // namespace weir::engine
