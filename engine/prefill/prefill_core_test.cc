// SPDX-License-Identifier: Apache-2.0
//
// Rules of the prefill core that need no decode engine: the test sends its messages by hand.
#include "engine/prefill/prefill_core.h"

#include <algorithm>
#include <functional>

#include "engine/run/fake_step_model.h"
#include "engine/run/wire.h"
#include "gtest/gtest.h"

namespace weir::engine {
namespace {

constexpr InstanceId kRouter{1};
constexpr InstanceId kDecode{3};
constexpr InstanceId kDecode2{4};

AttemptKey Id(uint64_t request, uint32_t attempt = 1) {
  return {.request = {.router = kRouter, .request = RequestId(request)},
          .attempt = Attempt(attempt)};
}

class PrefillCoreTest : public testing::Test {
 protected:
  void Start(PrefillCore::Config config, PageId pages = 64, uint64_t arena = 0) {
    kv_ = std::make_unique<FakeKv>(pages * 2, 128);
    model_ = std::make_unique<FakeStepModel>(kv_.get());
    config.model = FakeModelInfo();
    config.kv = ShareOf(FakeMemory(pages * 2, 128), 0, 2);
    config.arena = arena;
    core_ = std::make_unique<PrefillCore>(config);
    Give(PeerUp{.instance = kRouter, .role = Role::kRouter});
    Give(PeerUp{.instance = kDecode, .role = Role::kDecode, .arena = arena});
    plan_ = nullptr;
  }
  void Start() { Start({.chunk_rows = 16}); }

  template <class E>
  void Give(const E& event) {
    out_.Clear();
    core_->On(now_, EngineEvent(event), &out_);
    if (out_.launch != nullptr) plan_ = out_.launch;
    EXPECT_EQ(core_->CheckPages(), "");
    for (const auto& send : out_.sends) sent_.push_back(send);
  }
  void Deliver(const pb::Envelope& m, InstanceId from = kRouter) {
    Give(Received{.from = from, .message = m});
  }
  void Pass(Duration duration) {
    now_ += duration;
    Give(Tick{});
  }

  std::vector<TokenId> Tokens(uint32_t count) const {
    std::vector<TokenId> tokens;
    for (uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(i * 7 % kFakeVocab));
    return tokens;
  }
  void Prefill(AttemptKey id, uint32_t count, InstanceId sink = kDecode,
               const std::function<void(pb::Prefill*)>& edit = nullptr) {
    pb::Envelope m;
    KeyTo(id, m.mutable_prefill()->mutable_key());
    for (const TokenId token : Tokens(count)) m.mutable_prefill()->add_tokens(token);
    m.mutable_prefill()->set_prompt_tokens(std::min(count, 10u));
    m.mutable_prefill()->set_sink_instance(sink.value);
    m.mutable_prefill()->set_sink_address("there");
    if (edit) edit(m.mutable_prefill());
    Deliver(m);
  }
  void Forget(AttemptKey id) {
    pb::Envelope m;
    KeyTo(id, m.mutable_forget()->mutable_key());
    Deliver(m);
  }
  void HandoverDone(AttemptKey id, InstanceId from = kDecode) {
    pb::Envelope m;
    KeyTo(id, m.mutable_handover_done()->mutable_key());
    Deliver(m, from);
  }
  void HandoverAbort(AttemptKey id, InstanceId from = kDecode) {
    pb::Envelope m;
    KeyTo(id, m.mutable_handover_abort()->mutable_key());
    FailureTo(Reason::kCancelled, "", "", m.mutable_handover_abort()->mutable_failure());
    Deliver(m, from);
  }
  bool EndStep(StepHealth health = StepHealth::kOk, bool numbers = true) {
    if (plan_ == nullptr) return false;
    StepResult result = model_->Run(*plan_);
    if (!numbers) std::fill(result.tokens.begin(), result.tokens.end(), -1);
    result.health = health;
    plan_ = nullptr;
    Give(StepDone{.result = result});
    return true;
  }
  int EndSteps() {
    int steps = 0;
    while (EndStep()) ++steps;
    return steps;
  }

  const pb::Envelope* Last(pb::Envelope::BodyCase kind, InstanceId to = InstanceId()) const {
    for (auto it = sent_.rbegin(); it != sent_.rend(); ++it) {
      if (it->message.body_case() != kind) continue;
      if (to == InstanceId() || it->to == to) return &it->message;
    }
    return nullptr;
  }
  Reason Failed() const {
    const pb::Envelope* m = Last(pb::Envelope::kPrefillFailed);
    return m == nullptr ? Reason::kOk : ReasonFrom(m->prefill_failed().failure());
  }
  uint32_t Pages() const { return core_->state().pages_used[0]; }

  Instant now_{Millis(1000)};
  std::unique_ptr<FakeKv> kv_;
  std::unique_ptr<FakeStepModel> model_;
  std::unique_ptr<PrefillCore> core_;
  EngineActions out_;
  std::vector<EngineActions::Send> sent_;
  const StepPlan* plan_ = nullptr;
};

TEST_F(PrefillCoreTest, LogitsThatAreNoNumbersFailTheRequest) {
  Start();
  Prefill(Id(1), 24, InstanceId(0));
  EndStep();
  EXPECT_EQ(Failed(), Reason::kOk);
  EndStep(StepHealth::kOk, /*numbers=*/false);
  EXPECT_EQ(Failed(), Reason::kCorrupt);
  EXPECT_EQ(Last(pb::Envelope::kPrefillComputed), nullptr);
  EXPECT_EQ(Last(pb::Envelope::kPrefillDone), nullptr);
  EXPECT_EQ(Pages(), 0u);
}

TEST_F(PrefillCoreTest, ChunksAreOfferedAsTheyFinish) {
  Start();
  Prefill(Id(1), 38);
  EXPECT_NE(Last(pb::Envelope::kPrefillAccepted), nullptr);
  EndStep();
  ASSERT_NE(Last(pb::Envelope::kChunkDone), nullptr);
  EXPECT_EQ(Last(pb::Envelope::kChunkDone)->chunk_done().encoder_pages_size(), 4);
  EndSteps();
  const pb::ChunkDone& last = Last(pb::Envelope::kChunkDone)->chunk_done();
  EXPECT_EQ(last.first_block() + static_cast<uint32_t>(last.decoder_pages_size()), 10u);
  const pb::PrefillDone& done = Last(pb::Envelope::kPrefillDone)->prefill_done();
  EXPECT_EQ(done.token_count(), 38u);
  EXPECT_EQ(done.block_count(), 10u);
  EXPECT_EQ(done.first_token(), FakeNext(Tokens(38)));
  EXPECT_EQ(done.drafts_size(), static_cast<int>(kFakeDrafts));
  EXPECT_EQ(Last(pb::Envelope::kPrefillComputed)->prefill_computed().rows_computed(), 38u);
  EXPECT_EQ(core_->state().slots_used, 0u) << "the slot is free, the pages are not";
  EXPECT_EQ(Pages(), 10u);
  HandoverDone(Id(1));
  EXPECT_EQ(Pages(), 0u);
  EXPECT_EQ(core_->state().pages_retained[0], 10u);
}

TEST_F(PrefillCoreTest, D60_AShortPromptPassesAHugeOne) {
  Start({.chunk_rows = 16}, 1024);
  Prefill(Id(1), 1600);
  EndStep();
  for (uint64_t i = 2; i <= 6; ++i) Prefill(Id(i), 5);
  for (int i = 0; i < 3; ++i) EndStep();
  const auto requests = core_->Requests();
  EXPECT_EQ(std::count_if(requests.begin(), requests.end(),
                          [](const auto& r) { return std::string(r.phase) == "handover"; }),
            5);
  EXPECT_LE(3 + EndSteps(), 100 * 12 / 10);
}

TEST_F(PrefillCoreTest, D62_D63_WhatFitsRunsAndWhatDoesNotIsRefusedAtOnce) {
  for (const auto& [count, fits] : {std::pair{63u, true}, {64u, true}, {65u, false}}) {
    Start({.chunk_rows = 16}, 16);
    Prefill(Id(9), 64);  // fills the pool with what may be evicted
    EndSteps();
    HandoverDone(Id(9));
    sent_.clear();
    Prefill(Id(1), count);
    EndSteps();
    EXPECT_EQ(Last(pb::Envelope::kPrefillDone) != nullptr, fits) << count;
    EXPECT_EQ(Failed(), fits ? Reason::kOk : Reason::kTooLong) << count;
  }
}

TEST_F(PrefillCoreTest, RefusesBadFieldsByName) {
  Start();
  const std::pair<const char*, std::function<void(pb::Prefill*)>> cases[] = {
      {"tokens", [](pb::Prefill* m) { m->clear_tokens(); }},
      {"tokens", [](pb::Prefill* m) { m->set_tokens(0, kFakeVocab); }},
      {"tokens", [](pb::Prefill* m) { m->set_tokens(0, -1); }},
      {"prompt_tokens", [](pb::Prefill* m) { m->set_prompt_tokens(0); }},
      {"tail_start", [](pb::Prefill* m) { m->set_tail_start(100); }},
      {"top_k", [](pb::Prefill* m) { m->mutable_sampling()->set_top_k(-1); }},
  };
  for (const auto& [param, edit] : cases) {
    sent_.clear();
    Prefill(Id(1), 20, kDecode, edit);
    EXPECT_EQ(Failed(), Reason::kBadField) << param;
    EXPECT_EQ(Last(pb::Envelope::kPrefillFailed)->prefill_failed().failure().param(), param);
    EXPECT_EQ(core_->state().leases, 0u);
  }
}

TEST_F(PrefillCoreTest, QueueIsBounded) {
  Start({.slots = 1, .chunk_rows = 16, .queue_max = 2});
  for (uint64_t i = 1; i <= 3; ++i) Prefill(Id(i), 20);
  EXPECT_EQ(Failed(), Reason::kOk);
  Prefill(Id(4), 20);
  EXPECT_EQ(Failed(), Reason::kQueueFull);
}

TEST_F(PrefillCoreTest, WaitingTokensAreBounded) {
  Start({.slots = 1, .chunk_rows = 16, .queue_tokens_max = 30});
  for (uint64_t i = 1; i <= 2; ++i) Prefill(Id(i), 20);
  EXPECT_EQ(Failed(), Reason::kOk);
  Prefill(Id(3), 20);
  EXPECT_EQ(Failed(), Reason::kQueueFull);
}

TEST_F(PrefillCoreTest, D04_PagesOfADeadDecodeEngineAreFreeWithTheLease) {
  Start();
  Prefill(Id(1), 38);
  EndSteps();
  Give(PeerDown{.instance = kDecode});
  EXPECT_EQ(Failed(), Reason::kPeerLost);
  EXPECT_EQ(Pages(), 0u) << "what is retained may be dropped";
  EXPECT_EQ(core_->state().pages_retained[0], 10u);
  Pass(Millis(30000));
  EXPECT_EQ(core_->state().pages_retained[0], 0u);
}

TEST_F(PrefillCoreTest, D06_PagesOfAnOpenHandOverAreNeverEvicted) {
  Start({.chunk_rows = 16}, 16);
  Prefill(Id(1), 40);
  EndSteps();
  Prefill(Id(2), 40);
  EXPECT_FALSE(EndStep()) << "back-pressure";
  EXPECT_EQ(core_->state().queued, 1u);
  HandoverDone(Id(1));
  EXPECT_GT(EndSteps(), 0);
  EXPECT_EQ(core_->state().queued, 0u);
}

TEST_F(PrefillCoreTest, D11_AForgottenPrefillStopsWithinOneChunk) {
  Start();
  Prefill(Id(1), 200);
  EndStep();
  Forget(Id(1));
  EXPECT_GT(Pages(), 0u) << "the running step reads them";
  Prefill(Id(2), 8);
  EndStep();
  EXPECT_EQ(core_->state().rows_computed, 32u);
  ASSERT_NE(plan_, nullptr);
  EXPECT_EQ(plan_->tokens.size(), 8u) << "nothing but the next user's prompt";
  HandoverAbort(Id(1));
  EXPECT_EQ(core_->state().cancelled, 1u);
  EXPECT_EQ(Pages(), 2u);
}

TEST_F(PrefillCoreTest, ForgottenOffersWaitForTheAnswerButNotForEver) {
  Start();
  Prefill(Id(1), 38);
  EndSteps();
  Forget(Id(1));
  EXPECT_NE(Last(pb::Envelope::kHandoverAbort, kDecode), nullptr);
  EXPECT_EQ(Pages(), 10u);
  Pass(Millis(30000));
  EXPECT_EQ(Pages(), 0u);
  Prefill(Id(2), 38);
  EndSteps();
  Forget(Id(2));
  HandoverDone(Id(2));
  EXPECT_EQ(Pages(), 0u) << "it was read before it heard of the end";
}

TEST_F(PrefillCoreTest, DialsOnceAndFailsWhenNobodyAnswers) {
  Start();
  Prefill(Id(1), 38, kDecode2);
  ASSERT_EQ(out_.dials.size(), 1u);
  EXPECT_EQ(out_.dials[0].address, "there");
  Prefill(Id(2), 38, kDecode2);
  EXPECT_TRUE(out_.dials.empty());
  EndSteps();
  EXPECT_EQ(Last(pb::Envelope::kChunkDone), nullptr);
  Give(PeerDown{.instance = kDecode2});
  EXPECT_EQ(Failed(), Reason::kPeerLost);
  Prefill(Id(1, 2), 38, kDecode2);
  EXPECT_EQ(out_.dials.size(), 1u);
  Give(PeerUp{.instance = kDecode2, .role = Role::kDecode});
  EXPECT_NE(Last(pb::Envelope::kPrefillDone, kDecode2), nullptr);
  EXPECT_EQ(core_->state().rows_computed, 76u) << "nothing is computed twice";
}

TEST_F(PrefillCoreTest, ANewAttemptResumesWhatIsHeld) {
  Start();
  Prefill(Id(1), 38);
  EndSteps();
  HandoverDone(Id(1));
  Prefill(Id(1, 2), 50);
  EXPECT_EQ(Last(pb::Envelope::kPrefillAccepted)->prefill_accepted().resumed_at(), 38u);
  ASSERT_NE(plan_, nullptr);
  EXPECT_EQ(plan_->rows[0].first, 38u);
  EndSteps();
  EXPECT_EQ(core_->state().rows_computed, 50u);
  EXPECT_EQ(Last(pb::Envelope::kPrefillDone)->prefill_done().first_token(), FakeNext(Tokens(50)));
}

TEST_F(PrefillCoreTest, ANewAttemptWithAnotherTailOrOtherTokensStartsAfresh) {
  const std::function<void(pb::Prefill*)> edits[] = {
      [](pb::Prefill* m) { m->set_tail_start(3); },
      [](pb::Prefill* m) { m->set_tokens(5, 999); },
  };
  for (const auto& edit : edits) {
    Start();
    Prefill(Id(1), 38);
    EndSteps();
    HandoverDone(Id(1));
    Prefill(Id(1, 2), 50, kDecode, edit);
    EXPECT_EQ(Last(pb::Envelope::kPrefillAccepted)->prefill_accepted().resumed_at(), 0u);
    EndSteps();
    EXPECT_EQ(core_->state().rows_computed, 88u);
  }
}

TEST_F(PrefillCoreTest, ANewAttemptDuringAStepKeepsTheStep) {
  Start();
  Prefill(Id(1), 38);
  EndStep();
  Prefill(Id(1, 2), 38);
  Prefill(Id(1, 1), 38);  // late, of the older attempt
  EndSteps();
  EXPECT_EQ(core_->state().rows_computed, 38u);
  const pb::PrefillDone& done = Last(pb::Envelope::kPrefillDone)->prefill_done();
  EXPECT_EQ(KeyFrom(done.key()), Id(1, 2));
  EXPECT_EQ(done.first_token(), FakeNext(Tokens(38)));
}

TEST_F(PrefillCoreTest, RetainedPagesHaveALimitAndGoOldestFirst) {
  Start({.chunk_rows = 16, .retain_max = 2});
  for (uint64_t i = 1; i <= 3; ++i) {
    Prefill(Id(i), 16);
    EndSteps();
    HandoverDone(Id(i));
  }
  EXPECT_EQ(core_->state().pages_retained[0], 8u);
  sent_.clear();
  Prefill(Id(1, 2), 16);
  EXPECT_EQ(Last(pb::Envelope::kPrefillAccepted)->prefill_accepted().resumed_at(), 0u);
  Prefill(Id(3, 2), 16);
  EXPECT_EQ(Last(pb::Envelope::kPrefillAccepted)->prefill_accepted().resumed_at(), 16u);
}

TEST_F(PrefillCoreTest, QueuedResumesCannotBlockEachOther) {
  Start({.slots = 1, .chunk_rows = 16}, 16);
  for (uint64_t i = 1; i <= 4; ++i) {
    Prefill(Id(i), 16);
    EndSteps();
    HandoverDone(Id(i));
  }
  // All pages are held by four requests that each need two more.
  for (uint64_t i = 1; i <= 4; ++i) Prefill(Id(i, 2), 24);
  for (int i = 0; i < 100; ++i) {
    if (!EndStep()) break;
    for (const auto& request : core_->Requests()) {
      if (std::string(request.phase) == "handover") {
        HandoverDone({.request = request.key, .attempt = request.attempt});
      }
    }
  }
  EXPECT_EQ(core_->state().queued, 0u);
  EXPECT_EQ(core_->state().slots_used, 0u);
}

TEST_F(PrefillCoreTest, DeadlineEndsARequest) {
  Start();
  Prefill(Id(1), 38, InstanceId(0), [](pb::Prefill* m) { m->set_deadline_ms(100); });
  EndSteps();
  Pass(Millis(100));
  EXPECT_EQ(Failed(), Reason::kDeadline);
  EXPECT_EQ(Pages(), 0u);
}

TEST_F(PrefillCoreTest, AttachToAnUnknownRequestIsAnswered) {
  Start();
  pb::Envelope m;
  KeyTo(Id(1), m.mutable_attach()->mutable_key());
  m.mutable_attach()->set_sink_instance(3);
  Deliver(m);
  EXPECT_EQ(Failed(), Reason::kLeaseExpired);
  EXPECT_EQ(core_->state().orphans, 1u);
}

TEST_F(PrefillCoreTest, SharedArenaPagesInDoubtMoveOnlyOnTheAnswer) {
  Start({.chunk_rows = 16}, 64, 77);
  Prefill(Id(1), 38);
  EndSteps();
  Forget(Id(1));
  Pass(Millis(100000));
  EXPECT_EQ(Pages(), 10u) << "they may be the decode engine's by now";
  pb::Envelope m;
  pb::HandoverDone& done = *m.mutable_handover_done();
  KeyTo(Id(1), done.mutable_key());
  done.set_adopted(true);
  done.set_state_page(100);
  for (PageId i = 0; i < 10; ++i) {
    done.add_encoder_pages(64 + i);
    done.add_decoder_pages(70 + i);
  }
  Deliver(m, kDecode);
  EXPECT_EQ(Pages(), 0u);
  EXPECT_EQ(core_->state().pages_total[0], 64u);
}

TEST_F(PrefillCoreTest, MalformedExchangesLoseThePagesAndNothingElse) {
  Start({.chunk_rows = 16}, 64, 77);
  Prefill(Id(1), 38);
  EndSteps();
  pb::Envelope m;
  KeyTo(Id(1), m.mutable_handover_done()->mutable_key());
  m.mutable_handover_done()->set_adopted(true);
  for (PageId i = 0; i < 10; ++i) m.mutable_handover_done()->add_encoder_pages(64);
  Deliver(m, kDecode);
  EXPECT_EQ(core_->state().pages_total[0], 54u);
  EXPECT_EQ(Pages(), 0u);
}

TEST_F(PrefillCoreTest, WhoSharesNoArenaCannotTakePagesOver) {
  Start();
  Prefill(Id(1), 38);
  EndSteps();
  pb::Envelope m;
  KeyTo(Id(1), m.mutable_handover_done()->mutable_key());
  m.mutable_handover_done()->set_adopted(true);
  for (PageId i = 0; i < 10; ++i) m.mutable_handover_done()->add_encoder_pages(64 + i);
  Deliver(m, kDecode);
  EXPECT_EQ(core_->state().pages_total[0], 64u);
  EXPECT_EQ(Pages(), 0u);
}

}  // namespace
}  // namespace weir::engine
