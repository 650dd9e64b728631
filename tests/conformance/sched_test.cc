// SPDX-License-Identifier: Apache-2.0
// Known failures of comparable servers in scheduling and page pools, as stories that must end well
// here. One test per case, named by its code; sizes and times are scaled to the simulator.
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
  config.device.jitter = 0;
  return config;
}

TEST(SCHED_D60, ShortPromptsDoNotWaitBehindAHugeOne) {
  ClusterConfig config = OnePair();
  config.blocks = 2200;
  config.prefill_slots = 32;
  config.decode_slots = 32;
  config.chunk_rows = 512;
  Duration alone{};
  Duration short_alone{};
  {
    Scenario s(config);
    const ClientId first = s.Ask(Plain(101, 2));
    s.ExpectWhole(first);
    short_alone = s.At(first).first_token - s.At(first).submitted;
    const ClientId huge = s.Ask(Plain(30000, 4));
    s.ExpectWhole(huge);
    alone = s.At(huge).first_token - s.At(huge).submitted;
  }
  Scenario s(config);
  const ClientId huge = s.Ask(Plain(30000, 4));
  s.RunFor(Millis(20));
  std::vector<ClientId> shorts;
  for (int i = 0; i < 20; ++i) {
    shorts.push_back(s.Ask(Plain(101, 2)));
    s.RunFor(Millis(10));
  }
  s.ExpectWhole(huge);
  const Duration chunk = config.device.step + config.device.row * config.chunk_rows;
  for (const ClientId id : shorts) {
    s.ExpectWhole(id);
    EXPECT_LE(s.At(id).first_token - s.At(id).submitted, short_alone + 3 * chunk);
  }
  EXPECT_LE(Seconds(s.At(huge).first_token - s.At(huge).submitted), 1.25 * Seconds(alone));
  s.Ends();
}

TEST(SCHED_D61, PoolPressureNeverStopsProgress) {
  ClusterConfig config = OnePair();
  config.blocks = 64;
  config.prefill_slots = 8;
  config.decode_slots = 32;
  Scenario s(config);
  const std::vector<ClientId> all = s.AskMany(32, Plain(200, 56));  // 16 blocks each
  uint64_t last = 0;
  while (!s->AllOver()) {
    s.RunFor(std::chrono::seconds(5));
    const uint64_t steps = s.Sum(Role::kPrefill, &engine::EngineState::steps) +
                           s.Sum(Role::kDecode, &engine::EngineState::steps);
    ASSERT_TRUE(steps > last || s->AllOver()) << "still for 5 s";
    last = steps;
  }
  for (const ClientId id : all) s.ExpectWhole(id);
  s.Ends();
}

TEST(SCHED_D62, APromptThatFitsRunsAndOneThatDoesNotIsRefusedAtOnce) {
  ClusterConfig config = OnePair();
  config.blocks = 16;  // of 16 tokens
  config.retain_max = 8;
  Scenario s(config);
  const auto fits = [&s](uint32_t prompt, uint32_t answer) { s.ExpectWhole(s.Ask(Plain(prompt, answer))); };
  fits(255, 1);
  fits(239, 17);
  fits(100, 4);  // leaves pages behind that are only kept
  fits(90, 4);
  fits(255, 1);
  for (const uint32_t prompt : {256u, 257u, 272u}) {
    const ClientId c = s.Ask(Plain(prompt, 1));
    s.RunFor(Millis(1));
    ASSERT_TRUE(s.At(c).close.has_value());
    EXPECT_EQ(s.ReasonFor(c), Reason::kTooLong);
  }
  s.Ends();
}

TEST(SCHED_D63, TooLongIsSaidAtOnceWithBothNumbers) {
  ClusterConfig config = OnePair();
  config.model.positions_max = 300;
  Scenario s(config);
  s.ExpectWhole(s.Ask(Plain(299, 1)));
  for (const auto& [prompt, answer] : {std::pair(300u, 1u), {301u, 1u}, {3000u, 1u}, {299u, 2u},
                                       {10u, 1000000u}, {300u, 0u}}) {
    const ClientId c = s.Ask(Plain(prompt, answer));
    s.RunFor(Millis(1));
    ASSERT_TRUE(s.At(c).close.has_value()) << prompt;
    EXPECT_EQ(s.ReasonFor(c), Reason::kTooLong);
    const std::string message(s.At(c).close->status.message());
    EXPECT_NE(message.find("context_length_exceeded"), std::string::npos) << message;
    EXPECT_NE(message.find("300"), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(answer > 1 ? prompt + answer : prompt)),
              std::string::npos)
        << message;
  }
  const ClientId open = s.Ask(Plain(290, 0));  // no maximum: as many as fit
  s.RunUntilOver(open);
  EXPECT_TRUE(s.At(open).succeeded());
  EXPECT_EQ(s.Text(open).size(), 10u);
  s.Ends();
}

TEST(SCHED_D64, PrefillBurstsDoNotStopDecode) {
  ClusterConfig config = OnePair();
  config.paired = true;
  config.blocks = 1200;
  Duration solo{};
  {
    Scenario s(config);
    const ClientId victim = s.Ask(Plain(30, 700));
    s.ExpectWhole(victim);
    solo = s.At(victim).last_token - s.At(victim).first_token;
  }
  Scenario s(config);
  const ClientId victim = s.Ask(Plain(30, 700));
  s.RunUntilReceived(victim, 10);
  const ClientId attacker = s.Ask(Plain(100 * config.chunk_rows, 2));
  s.ExpectWhole(victim);
  s.ExpectWhole(attacker);
  const Duration chunk = config.device.step + config.device.row * config.chunk_rows;
  EXPECT_LE(Seconds(s.At(victim).last_token - s.At(victim).first_token), Seconds(solo) / 0.3);
  EXPECT_LE(s.At(victim).longest_gap, 2 * chunk + Millis(2));
  s.Ends();
}

}  // namespace
}  // namespace weir::sim
