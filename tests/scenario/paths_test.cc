// SPDX-License-Identifier: Apache-2.0
// The quiet ways through the system: shapes, batches, pools, limits and the clients' own will.
#include "tests/scenario/scenario.h"

namespace weir::sim {
namespace {

RequestSpec Plain(uint32_t prompt, uint32_t answer) {
  RequestSpec spec;
  spec.prompt_tokens = prompt;
  spec.new_tokens_max = answer;
  return spec;
}

TEST(Paths, BlocksOf64And128And256SayTheSame) {
  std::vector<std::vector<TokenId>> texts;
  for (const uint32_t block : {64u, 128u, 256u}) {
    ClusterConfig config = Scenario::Small();
    config.model.block_tokens = block;
    config.blocks = 2048 / block;
    Scenario s(config);
    const ClientId c = s.Ask(Plain(300, 200));
    s.ExpectWhole(c);
    texts.push_back(s.Text(c));
    s.Ends();
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

TEST(Paths, DraftsChangeTheSpeedAndNotTheText) {
  std::vector<std::vector<TokenId>> texts;
  std::vector<uint64_t> steps;
  for (const uint32_t drafts : {0u, 1u, 3u, 5u}) {
    ClusterConfig config = Scenario::Small();
    config.model.draft_max = drafts;
    Scenario s(config);
    RequestSpec spec = Plain(50, 200);
    spec.temperature = 0.8f;
    const ClientId c = s.Ask(spec);
    s.ExpectWhole(c);
    texts.push_back(s.Text(c));
    steps.push_back(s.Sum(Role::kDecode, &engine::EngineState::steps));
    s.Ends();
  }
  for (const auto& text : texts) EXPECT_EQ(text, texts[0]);
  EXPECT_LT(2 * steps[3], steps[0]);
}

TEST(Paths, AloneAndAmongOthersSayTheSame) {
  ClusterConfig config = Scenario::Small();
  config.blocks = 256;
  Scenario alone(config);
  const ClientId c = alone.Ask(Plain(77, 90));
  alone.ExpectWhole(c);
  Scenario among(config);
  const ClientId same = among.Ask(Plain(77, 90));
  for (uint32_t i = 0; i < 16; ++i) among.Ask(Plain(10 + 9 * i, 40 + i));
  among.ExpectWhole(same);
  EXPECT_EQ(alone.Text(c), among.Text(same));
  among.Ends();
}

TEST(Paths, OneProcessGivesPagesWithoutACopy) {
  ClusterConfig config = Scenario::Small();
  config.paired = true;
  config.prefill = config.decode = 1;
  Scenario s(config);
  uint32_t reads = 0;
  for (const ClientId id : s.AskMany(6, Plain(100, 60))) {
    s.RunUntil([&] {
      reads = std::max(reads, s->transfer().outstanding());
      return s.At(id).over();
    });
    s.ExpectWhole(id);
  }
  EXPECT_EQ(reads, 0u);
  s.Ends();
}

TEST(Paths, AttachLateWhenDecodeHadNoRoom) {
  ClusterConfig config = Scenario::Small();
  config.decode = 1;
  config.decode_slots = 1;
  Scenario s(config);
  const Reached late("prefill: attached late");
  const ClientId first = s.Ask(Plain(40, 100));
  const ClientId second = s.Ask(Plain(90, 40));
  s.ExpectWhole(first);
  s.ExpectWhole(second);
  EXPECT_GE(late.count(), 1u);
  s.Ends();
}

TEST(Paths, SeededStreamsDifferBySeedOnly) {
  Scenario s;
  RequestSpec spec = Plain(40, 60);
  spec.prompt.assign(40, 17);
  spec.temperature = 1;
  spec.sampling_seed = 1;
  const ClientId a = s.Ask(spec);
  const ClientId b = s.Ask(spec);
  spec.sampling_seed = 2;
  const ClientId c = s.Ask(spec);
  for (const ClientId id : {a, b, c}) s.ExpectWhole(id);
  EXPECT_EQ(s.Text(a), s.Text(b));
  EXPECT_NE(s.Text(a), s.Text(c));
  s.Ends();
}

TEST(Paths, StopTokensAndMinimumAndPenalties) {
  ClusterConfig config = Scenario::Small();
  config.model.stop_probability = 0.05;
  Scenario s(config);
  RequestSpec spec = Plain(40, 400);
  const ClientId stops = s.Ask(spec);
  spec.min_tokens = 390;
  spec.repetition_penalty = 1.3f;
  const ClientId late = s.Ask(spec);
  s.ExpectWhole(stops);
  s.ExpectWhole(late);
  EXPECT_EQ(s.At(stops).close->finish, pb::FINISH_REASON_STOP);
  EXPECT_LT(s.Text(stops).size(), 400u);
  EXPECT_GE(s.Text(late).size(), 390u);
  s.Ends();
}

TEST(Paths, OneTokenPromptsAndOneTokenAnswers) {
  Scenario s;
  for (const auto& [prompt, answer] : {std::pair(1u, 1u), {1u, 30u}, {16u, 1u}, {17u, 2u}}) {
    s.ExpectWhole(s.Ask(Plain(prompt, answer)));
  }
  s.Ends();
}

TEST(Paths, QueueFullIsAnAnswerAndNothingIsLeft) {
  ClusterConfig config = Scenario::Small();
  config.requests_max = 4;
  Scenario s(config);
  s->AllowFailures();
  const std::vector<ClientId> all = s.AskMany(10, Plain(50, 50));
  s.RunUntil([&] { return s->AllOver(); });
  uint32_t refused = 0;
  for (const ClientId id : all) refused += s.ReasonFor(id) == Reason::kQueueFull ? 1 : 0;
  EXPECT_EQ(refused, 6u);
  s.Ends();
}

TEST(Paths, DeadlinePassesAndEverythingIsGivenBack) {
  Scenario s;
  s->AllowFailures();
  RequestSpec spec = Plain(100, 600);
  spec.deadline = Millis(80);
  const ClientId c = s.Ask(spec);
  s.RunUntilOver(c);
  EXPECT_EQ(s.ReasonFor(c), Reason::kDeadline);
  s.RunFor(Millis(200));
  EXPECT_EQ(s.SlotsUsed(Role::kDecode), 0u);
  EXPECT_EQ(s.PagesUsed(Role::kDecode), 0u);
  s.Ends();
}

TEST(Paths, DisconnectStormLeavesNothing) {
  ClusterConfig config = Scenario::Small();
  config.transfer.base = Millis(2);
  config.requests_max = 1000;
  Scenario s(config);
  Random random(5);
  for (int wave = 0; wave < 6; ++wave) {
    for (int i = 0; i < 40; ++i) {
      const ClientId id = s.Ask(Plain(1 + static_cast<uint32_t>(random.Below(120)), 100));
      s->At(s->now() + Duration(random.Between(0, 40'000'000)), [&s, id] { s->Withdraw(id); });
    }
    s.RunFor(Millis(30));
  }
  s.RunFor(std::chrono::seconds(1));
  EXPECT_TRUE(s->AllOver());
  s.RunFor(std::chrono::seconds(9));
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    EXPECT_EQ(s.SlotsUsed(role), 0u);
    EXPECT_EQ(s.PagesUsed(role), 0u);
  }
  s.Ends();
}

TEST(Paths, EnginesRegisterAfterTheFirstRequest) {
  ClusterConfig config = Scenario::Small();
  SimCluster cluster(config);
  RequestSpec spec = Plain(30, 20);
  const ClientId c = cluster.Submit(spec);  // before any link stands
  EXPECT_TRUE(cluster.RunUntil([&] { return cluster.client(c).over(); }));
  EXPECT_TRUE(cluster.client(c).succeeded());
  EXPECT_TRUE(cluster.Finish()) << cluster.violation();
}

TEST(Paths, MessagesCrossAsBytesOrAsTheyAre) {
  std::vector<std::vector<TokenId>> texts;
  for (const bool serialise : {true, false}) {
    ClusterConfig config = Scenario::Small();
    config.net.serialise = serialise;
    Scenario s(config);
    RequestSpec spec = Plain(70, 70);
    spec.top_logprobs = 4;
    const ClientId c = s.Ask(spec);
    s.ExpectWhole(c);
    texts.push_back(s.Text(c));
    s.Ends();
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(Paths, TheSameSeedIsTheSameRun) {
  uint64_t events[2];
  for (uint64_t& count : events) {
    Scenario s;
    s.AskMany(12, Plain(60, 40));
    s.RunFor(Millis(15));
    s->Kill(s->Alive(Role::kDecode).front());
    s.Ends();
    count = s->events();
  }
  EXPECT_EQ(events[0], events[1]);
}

}  // namespace
}  // namespace weir::sim
