// SPDX-License-Identifier: Apache-2.0
// Known failures of comparable servers in the hand-over between prefill and decode, as stories that
// must end well here. One test per case, named by its code; times are scaled to the simulator.
#include "tests/scenario/scenario.h"

namespace weir::sim {
namespace {

RequestSpec Plain(uint32_t prompt, uint32_t answer) {
  RequestSpec spec;
  spec.prompt_tokens = prompt;
  spec.new_tokens_max = answer;
  return spec;
}

ClusterConfig OnePair() {
  ClusterConfig config = Scenario::Small();
  config.prefill = config.decode = 1;
  config.requests_max = 2000;
  return config;
}

void ExpectBase(Scenario* s) {
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    EXPECT_EQ(s->SlotsUsed(role), 0u);
    EXPECT_EQ(s->PagesUsed(role), 0u);
    EXPECT_EQ(s->Sum(role, &engine::EngineState::tokens_emitted) > 0, role == Role::kDecode);
  }
}

TEST(PD_D01, ReservationsEndThoughTheFrozenPrefillNeverReports) {
  ClusterConfig config = OnePair();
  config.decode_slots = 32;
  config.net.dead_after = std::chrono::seconds(60);  // only the lease helps
  Scenario s(config);
  s.ExpectWhole(s.Ask(Plain(8, 4)));
  const InstanceId prefill = s->Alive(Role::kPrefill).front();
  s->Freeze(prefill, std::chrono::seconds(50));
  const std::vector<ClientId> all = s.AskMany(20, Plain(50, 50));
  s.RunFor(Millis(200));
  EXPECT_GT(s.PagesUsed(Role::kDecode), 0u);
  for (const ClientId id : all) s->Withdraw(id);
  s->Kill(prefill);
  s.RunFor(config.lease + std::chrono::seconds(5));
  EXPECT_EQ(s.PagesUsed(Role::kDecode), 0u);
  EXPECT_EQ(s.SlotsUsed(Role::kDecode), 0u);
  s.Ends();
}

TEST(PD_D02, DisconnectsDuringTheTransferLeakNothing) {
  ClusterConfig config = OnePair();
  config.blocks = 256;
  config.transfer.base = Millis(1000);
  Scenario s(config);
  for (int i = 0; i < 100; ++i) {
    const ClientId id = s.Ask(Plain(64, 20));
    s.RunUntil([&] { return s->transfer().outstanding() > 0; });
    s.RunFor(Millis(300));
    EXPECT_FALSE(s.At(id).over());
    s->Withdraw(id);
    s.RunFor(Millis(5));
  }
  s.RunFor(std::chrono::seconds(10));
  EXPECT_EQ(s.PagesUsed(Role::kPrefill), 0u);
  EXPECT_EQ(s.PagesUsed(Role::kDecode), 0u);
  // The decode engine hears of some from the prefill engine first, as a hand-over given up.
  EXPECT_GT(s.Sum(Role::kDecode, &engine::EngineState::cancelled), 50u);
  EXPECT_EQ(s->Router(s->Alive(Role::kRouter).front())->core().state().cancelled, 100u);
  s.Ends();
}

TEST(PD_D03, WavesOfCancelsAreGivenBackInSilence) {
  ClusterConfig config = OnePair();
  config.queue_max = 1000;
  Scenario s(config);
  s.ExpectWhole(s.Ask(Plain(8, 4)));
  for (int wave = 0; wave < 4; ++wave) {
    const std::vector<ClientId> all = s.AskMany(300, Plain(40, 100));
    s.RunFor(Millis(100));
    for (const ClientId id : all) s->Withdraw(id);
  }
  s.RunFor(std::chrono::seconds(30));
  ExpectBase(&s);
  s.Ends();
}

TEST(PD_D04, PrefillFreesWhatADeadDecodeNeverTook) {
  ClusterConfig config = Scenario::Small();
  config.blocks = 400;
  config.decode_slots = 64;
  config.transfer.base = Millis(30);
  config.retain_max = 0;
  Scenario s(config);
  const std::vector<ClientId> all = s.AskMany(50, Plain(60, 30));
  s.RunUntil([&] { return s->transfer().outstanding() > 5; });
  s->Kill(s->Alive(Role::kDecode).front());
  for (const ClientId id : all) s.ExpectWhole(id);
  s.RunFor(config.lease);
  EXPECT_EQ(s.PagesUsed(Role::kPrefill), 0u);
  s.Ends();
}

TEST(PD_D05, OverloadWithImpatientClientsComesBackDown) {
  ClusterConfig config = OnePair();
  config.queue_max = 500;
  Scenario s(config);
  s.ExpectWhole(s.Ask(Plain(8, 4)));
  const std::vector<ClientId> all = s.AskMany(400, Plain(160, 200));
  s->AllowFailures();
  s.RunFor(Millis(600));
  EXPECT_GT(s.PagesUsed(Role::kDecode), 32u);
  for (const ClientId id : all) s->Withdraw(id);
  s.RunFor(std::chrono::seconds(10));
  ExpectBase(&s);
  s.Ends();
}

TEST(PD_D06, PagesWithAPendingReadAreNotEvicted) {
  ClusterConfig config = OnePair();
  config.model.block_tokens = 16;
  config.blocks = 64;
  config.decode_slots = 16;
  config.transfer.base = Millis(50);
  Scenario s(config);
  for (const ClientId id : s.AskMany(16, Plain(256, 16))) s.ExpectWhole(id);
  s.Ends();
}

TEST(PD_D07, PagesOfAnAbortedRequestAreNotReusedUnderItsReads) {
  ClusterConfig config = OnePair();
  config.blocks = 8;
  config.growth_blocks = 1;
  Scenario s(config);
  for (int round = 0; round < 10; ++round) {
    s->transfer().Slow(6000, s->now() + std::chrono::seconds(3));
    const ClientId a = s.Ask(Plain(96, 8));
    s.RunUntil([&] { return s->transfer().outstanding() > 0; });
    s.RunFor(Millis(1000));
    s->Withdraw(a);
    s->transfer().Mend();
    s.ExpectWhole(s.Ask(Plain(100, 20)));
  }
  s.Ends();
}

TEST(PD_D08, AbortsAtRandomTimesEndNobody) {
  ClusterConfig config = Scenario::Small();
  config.transfer.base = Millis(2);
  config.requests_max = 2000;
  Scenario s(config);
  Random random(8);
  for (int i = 0; i < 500; ++i) {
    const ClientId id = s.Ask(Plain(1 + static_cast<uint32_t>(random.Below(100)), 30));
    s.RunFor(Duration(random.Between(0, 15'000'000)));
    s->Withdraw(id);
  }
  EXPECT_EQ(s->Alive(Role::kPrefill).size() + s->Alive(Role::kDecode).size(), 4u);
  s.Ends();
}

TEST(PD_D09, HandOffsNobodyKnowsAreCountedAndKeepNothing) {
  const engine::HashConfig model;
  const auto loaded = engine::MakeHashModel(model);
  const SimMemory memory(loaded->info().layout, 16, 4, 1);
  engine::DecodeCore::Config config;
  config.model = loaded->info();
  config.kv = engine::ShareOf(memory.kv());
  config.slots = 4;
  engine::DecodeCore core(std::move(config));
  engine::EngineActions actions;
  const InstanceId stranger(9);
  core.On(Instant(Millis(1)), engine::PeerUp{stranger, Role::kPrefill, 0}, &actions);
  for (uint64_t i = 0; i < 100000; ++i) {
    pb::Envelope message;
    pb::ChunkDone& chunk = *message.mutable_chunk_done();
    chunk.mutable_key()->set_router(1);
    chunk.mutable_key()->set_request(i);
    chunk.mutable_key()->set_attempt(1);
    chunk.add_encoder_pages(0);
    chunk.add_decoder_pages(0);
    actions.Clear();
    core.On(Instant(Millis(2)), engine::Received{stranger, message}, &actions);
    EXPECT_TRUE(actions.fetches.empty());
  }
  EXPECT_EQ(core.state().orphans, 100000u);
  EXPECT_EQ(core.state().leases, 0u);
  EXPECT_TRUE(core.Sequences().empty());
  EXPECT_EQ(core.CheckPages(), "");
}

TEST(PD_D10, ACutDataPathIsToldAndTriedAgain) {
  Scenario s;
  const ClientId c = s.Ask(Plain(120, 30));
  s.RunUntil([&] { return s->transfer().outstanding() > 0; });
  for (const InstanceId p : s->Alive(Role::kPrefill)) {
    for (const InstanceId d : s->Alive(Role::kDecode)) {
      s->transfer().Cut(p, d, s->now() + Millis(2));
    }
  }
  const Reached failed("decode: read failed");
  s.ExpectWhole(c);
  EXPECT_GE(failed.count(), 1u);
  EXPECT_GE(s.Attempts(c), 2u);
  s.Ends();
}

TEST(PD_D11, CancelledPrefillsStopWithinOneChunk) {
  ClusterConfig config = OnePair();
  config.blocks = 2600;
  config.prefill_slots = 16;
  config.device.jitter = 0;
  Scenario s(config);
  const ClientId idle = s.Ask(Plain(24, 4));
  s.ExpectWhole(idle);
  const Duration idle_ttft = s.At(idle).first_token - s.At(idle).submitted;
  const std::vector<ClientId> all = s.AskMany(10, Plain(4000, 10));
  s.RunFor(Millis(100));
  for (const ClientId id : all) s->Withdraw(id);
  const ClientId next = s.Ask(Plain(24, 4));
  s.ExpectWhole(next);
  const Duration chunk = config.device.step + config.device.row * config.chunk_rows;
  EXPECT_LE(s.At(next).first_token - s.At(next).submitted, idle_ttft + chunk + Millis(3));
  s.Ends();
}

TEST(PD_D12, TheFirstTokenComesOnceFromThePrefillLeg) {
  Scenario s;
  RequestSpec spec = Plain(40, 30);
  spec.prompt.assign(40, 9);
  const ClientId plain = s.Ask(spec);
  spec.top_logprobs = 2;
  const ClientId scored = s.Ask(spec);
  s.ExpectWhole(plain);
  s.ExpectWhole(scored);
  EXPECT_EQ(s.Text(plain), s.Text(scored));
  s.Ends();
}

TEST(PD_D13, ALongAnswerArrivesWhole) {
  ClusterConfig config = OnePair();
  config.blocks = 400;
  Scenario s(config);
  RequestSpec spec = Plain(30, 2000);
  const ClientId c = s.Ask(spec);
  const ClientId other = s.Ask(Plain(30, 40));
  s.ExpectWhole(other);
  EXPECT_FALSE(s.At(c).over());
  s.ExpectWhole(c);
  EXPECT_EQ(s.Text(c).size(), 2000u);
  EXPECT_EQ(s.At(c).close->finish, pb::FINISH_REASON_LENGTH);
  s.Ends();
}

TEST(PD_D14, ServerSideAbortsAreErrorsAndNeverAnEmptySuccess) {
  for (const uint32_t tokens : {0u, 5u}) {
    ClusterConfig config = OnePair();
    config.attempts_max = 1;
    Scenario s(config);
    s->AllowFailures();
    const ClientId c = s.Ask(Plain(100, 100));
    if (tokens == 0) {
      s.RunUntil([&] { return s->DecodeOf(c).value != 0; });
    } else {
      s.RunUntilReceived(c, tokens);
    }
    s->Kill(s->DecodeOf(c));
    s.RunUntilOver(c);
    EXPECT_FALSE(s.At(c).succeeded());
    EXPECT_EQ(s.ReasonFor(c), Reason::kPeerLost);
    s.Ends();
  }
}

// Prefixes are not reused yet, so that a hit of anything would be a lie.
TEST(PD_D15, CachedTokensNeverCountTheTransferredPrompt) {
  Scenario s;
  RequestSpec spec = Plain(64, 5);
  spec.prompt.assign(64, 33);
  for (int i = 0; i < 2; ++i) {
    const ClientId c = s.Ask(spec);
    s.ExpectWhole(c);
    EXPECT_EQ(s.At(c).close->cached_tokens, 0u);
    EXPECT_EQ(s.At(c).close->prompt_tokens, 64u);
  }
  s.Ends();
}

TEST(PD_D16, EveryTokenHasItsLogprobTheFirstToo) {
  Scenario s;
  RequestSpec spec = Plain(40, 20);
  spec.top_logprobs = 5;
  const ClientId c = s.Ask(spec);
  s.ExpectWhole(c);  // each is compared with the oracle's as it arrives
  EXPECT_EQ(s.At(c).scores, 20u);
  s.Ends();
}

TEST(PD_D17, PreemptedSequencesFinishAsIfAlone) {
  ClusterConfig config = OnePair();
  config.blocks = 32 * 4 + 8;
  config.prefill_slots = 8;
  config.growth_blocks = 1;
  Scenario s(config);
  const Reached preempted("decode: preempted");
  const std::vector<ClientId> all = s.AskMany(8, Plain(16, 500));
  s.RunUntil([&] { return preempted.count() >= 2; });
  uint32_t aborted = 0;
  for (const ClientId id : all) {
    if (aborted < 2 && s->DecodePhase(id) != "running" && !s.At(id).over()) {
      s->Withdraw(id);
      ++aborted;
    }
  }
  EXPECT_EQ(aborted, 2u);
  for (const ClientId id : all) {
    if (!s.At(id).withdrawn) s.ExpectWhole(id);
  }
  s.Ends();
}

TEST(PD_D18, CancellingTheQueuedLeavesTheRunningAlone) {
  ClusterConfig config = OnePair();
  config.decode_slots = 1;
  config.blocks = 256;
  Scenario s(config);
  const ClientId running = s.Ask(Plain(30, 400));
  s.RunUntilReceived(running, 10);
  const std::vector<ClientId> queued = s.AskMany(10, Plain(200, 50));
  s.RunFor(Millis(20));
  for (const ClientId id : queued) {
    EXPECT_TRUE(s.Text(id).empty());
    s->Withdraw(id);
  }
  s.ExpectWhole(running);
  EXPECT_EQ(s.Attempts(running), 1u);
  s.Ends();
}

}  // namespace
}  // namespace weir::sim
