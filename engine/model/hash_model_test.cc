// SPDX-License-Identifier: Apache-2.0
#include "engine/model/hash_model.h"

#include "engine/model/hash_oracle.h"
#include "engine/model/paged_runner_for_test.h"
#include "gtest/gtest.h"

namespace weir::engine {
namespace {

HashConfig SmallConfig() {
  HashConfig config;
  config.vocab = 500;
  config.window = 6;
  config.decoder_tail_rows = 6;
  config.draft_max = 3;
  config.block_tokens = 8;
  return config;
}

std::vector<TokenId> PromptOf(uint64_t seed, size_t count) {
  Random random(seed, 77);
  std::vector<TokenId> out;
  while (out.size() < count) out.push_back(static_cast<TokenId>(random.Below(500)));
  return out;
}

Position TailStart(size_t prompt, const HashConfig& config) {
  return static_cast<Position>(prompt) - std::min<Position>(static_cast<Position>(prompt),
                                                            config.decoder_tail_rows);
}

SamplingParams SamplingOf(uint64_t seed) {
  SamplingParams sampling;
  Random random(seed, 5);
  if (random.Chance(0.5)) sampling.temperature = 0.8f;
  sampling.seed = random.Next();
  if (random.Chance(0.2)) sampling.repetition_penalty = 1.3f;
  if (random.Chance(0.2)) sampling.top_k = 5;
  if (random.Chance(0.2)) sampling.top_p = 0.7f;
  sampling.logprobs = random.Chance(0.3);
  sampling.top_logprobs = 4;
  return sampling;
}

TEST(HashModel, AnyChunkingBatchingAndVerificationEqualsTheOracle) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    HashConfig config = SmallConfig();
    config.block_tokens = std::vector<uint32_t>{8, 16, 64}[random.Below(3)];
    config.draft_max = static_cast<uint32_t>(random.Below(5));
    const auto loaded = MakeHashModel(config);
    PagedRunner runner(*loaded, seed);
    std::vector<HashOracle> oracles;
    for (uint64_t i = 0; i < 5; ++i) {
      const size_t length = 1 + random.Below(i == 0 ? 300 : 60);
      const auto prompt = PromptOf(seed * 100 + i, length);
      const auto sampling = SamplingOf(seed * 100 + i);
      const Position tail = TailStart(length, config);
      runner.Add(prompt, tail, sampling);
      oracles.emplace_back(config, prompt, tail, sampling);
    }
    for (int step = 0; step < 80; ++step) {
      for (int32_t i = 0; i < 5; ++i) {
        if (random.Chance(0.3)) continue;
        auto& s = runner.At(SlotId(i));
        if (s.computed < s.prompt_tokens) {
          runner.PlanPrefill(SlotId(i), 1 + static_cast<uint32_t>(random.Below(40)));
          if (random.Chance(0.3)) runner.PlanPrefill(SlotId(i), 3);
        } else {
          runner.PlanVerify(SlotId(i), static_cast<uint32_t>(random.Below(5)));
        }
      }
      runner.Run();
    }
    for (int32_t i = 0; i < 5; ++i) {
      const auto& s = runner.At(SlotId(i));
      ASSERT_GT(s.answer.size(), 10u);
      auto& oracle = oracles[static_cast<size_t>(i)];
      ASSERT_EQ(s.answer, oracle.Answer(static_cast<uint32_t>(s.answer.size()))) << seed;
      if (!s.sampling.logprobs) continue;
      ASSERT_EQ(s.scores.size(), s.answer.size());
      EXPECT_EQ(s.scores[3].logprob, oracle.scores()[3].logprob);
      EXPECT_EQ(s.scores[3].top, oracle.scores()[3].top);
    }
  }
}

TEST(HashModel, MostDraftsAreAccepted) {
  const HashConfig config = SmallConfig();
  const auto loaded = MakeHashModel(config);
  PagedRunner runner(*loaded);
  const SlotId slot = runner.Add(PromptOf(3, 20), 14, {});
  runner.Generate(slot, 1, 0);
  int steps = 0;
  while (runner.At(slot).answer.size() < 400) {
    runner.PlanVerify(slot, 3);
    runner.Run();
    ++steps;
  }
  EXPECT_GT(400.0 / steps, 1.8);
  EXPECT_LT(400.0 / steps, 3.2);
}

// Each kind of state, corrupted where the next rows must read it.
struct Damage {
  const char* name;
  HashStore store;
  int layer;
  Position back;  // rows behind the cursor
};

TEST(HashModel, AnyDamagedByteChangesTheText) {
  const Damage kinds[] = {
      {"encoder block", kHashEncoderBlock, 0, 9},   {"decoder block", kHashDecoderBlock, 0, 9},
      {"encoder window 0", kHashEncoderWindow, 0, 2}, {"encoder window 1", kHashEncoderWindow, 1, 2},
      {"decoder window", kHashDecoderWindow, 0, 2}, {"remainder", kHashRemainder, 0, 1},
      {"history", kHashHistory, 0, 1},              {"older history", kHashHistory, 0, 2},
  };
  const HashConfig config = SmallConfig();
  const auto loaded = MakeHashModel(config);
  const CacheLayout& layout = loaded->info().layout;
  const auto prompt = PromptOf(9, 41);  // odd: the remainder is of the last row
  HashOracle oracle(config, prompt, TailStart(41, config), {});
  for (const Damage& kind : kinds) {
    for (size_t byte = 0; byte < sizeof(HashRow); ++byte) {
      PagedRunner runner(*loaded, byte + 1);
      const SlotId slot = runner.Add(prompt, TailStart(41, config), {});
      runner.Generate(slot, 1, 0);
      auto& s = runner.At(slot);
      Position at = s.computed - kind.back;
      if (kind.store == kHashEncoderBlock) at |= 1;
      std::byte* row = nullptr;
      if (kind.store == kHashEncoderBlock || kind.store == kHashDecoderBlock) {
        const Part part = kind.store == kHashEncoderBlock ? Part::kEncoder : Part::kDecoder;
        const PageId page = s.pages[static_cast<int>(part)][at / config.block_tokens];
        row = runner.memory().Page(part, page) +
              layout.PageOffset(kind.store, 0, at % config.block_tokens);
      } else {
        row = runner.memory().State(s.state) + layout.StateOffset(kind.store, kind.layer, at);
      }
      row[byte] ^= std::byte{1};
      runner.Generate(slot, 8, 0);
      const auto& truth = oracle.Answer(8);
      EXPECT_NE(std::vector<TokenId>(s.answer.begin() + 1, s.answer.begin() + 8),
                std::vector<TokenId>(truth.begin() + 1, truth.end()))
          << kind.name << " byte " << byte;
    }
  }
}

TEST(HashModel, EverythingAboutARequestCounts) {
  const HashConfig config = SmallConfig();
  const auto prompt = PromptOf(4, 40);
  SamplingParams greedy;
  const auto answer = HashOracle(config, prompt, 34, greedy).Answer(20);
  EXPECT_NE(answer, HashOracle(config, prompt, 33, greedy).Answer(20));
  EXPECT_EQ(answer, HashOracle(config, prompt, 34, greedy).Answer(20));
  SamplingParams one;
  one.temperature = 1;
  one.seed = 1;
  SamplingParams two = one;
  two.seed = 2;
  EXPECT_NE(HashOracle(config, prompt, 34, one).Answer(20),
            HashOracle(config, prompt, 34, two).Answer(20));
  auto other = prompt;
  other[0] ^= 1;
  EXPECT_NE(answer, HashOracle(config, other, 34, greedy).Answer(20));
  HashConfig salted = config;
  salted.salt = 1;
  EXPECT_NE(answer, HashOracle(salted, prompt, 34, greedy).Answer(20));
}

TEST(HashModel, StopsAndBiasAndMinimum) {
  HashConfig config = SmallConfig();
  config.stop_probability = 0.2;
  const auto prompt = PromptOf(4, 40);
  SamplingParams sampling;
  sampling.stop_tokens = {1};
  HashOracle stops(config, prompt, 34, sampling);
  EXPECT_LT(stops.Answer(400).size(), 400u);
  EXPECT_TRUE(stops.stopped());
  sampling.min_tokens = 390;
  HashOracle late(config, prompt, 34, sampling);
  EXPECT_GE(late.Answer(400).size(), 390u);
  sampling.logit_bias = {{77, 100.0f}};
  EXPECT_EQ(HashOracle(config, prompt, 34, sampling).Answer(3), std::vector<TokenId>(3, 77));
}

TEST(HashModel, ReplayRowsKeepBlocksAndRebuildWindows) {
  // 2(W-1) rows of replay rebuild exact encoder windows; blocks below the floor stay untouched.
  HashConfig config = SmallConfig();
  const auto loaded = MakeHashModel(config);
  PagedRunner runner(*loaded);
  const auto prompt = PromptOf(8, 60);
  const SlotId slot = runner.Add(prompt, 54, {});
  runner.PlanPrefill(slot, 40);
  runner.Run();
  auto& s = runner.At(slot);
  std::memset(runner.memory().State(s.state), 0, loaded->info().layout.state_bytes());
  const Position from = 40 - 2 * (config.window - 1) - 2;
  SlotView view;
  for (int part = 0; part < kPartCount; ++part) view.pages[part] = s.pages[part];
  view.state = s.state;
  view.sampling = &s.sampling;
  view.prompt_tokens = 60;
  view.tail_start = 54;
  StepPlan plan;
  plan.step = StepId(1000);
  plan.slots = std::span(&view, 1);
  plan.tokens.assign(prompt.begin() + from - 2, prompt.begin() + 40);
  plan.rows.push_back({.slot = slot,
                       .kind = RowKind::kReplay,
                       .first = from - 2,  // two more for the token history
                       .count = static_cast<uint16_t>(40 - from + 2),
                       .write_floor = 40,
                       .visible_from = from - 2});
  auto model = loaded->Instantiate(runner.memory());
  model->Launch(plan);
  StepResult result;
  ASSERT_TRUE(model->Collect(plan.step, true, &result));
  EXPECT_TRUE(result.accepted.empty());
  runner.Generate(slot, 12, 2);
  HashOracle oracle(config, prompt, 54, {});
  EXPECT_EQ(std::vector<TokenId>(s.answer.begin(), s.answer.begin() + 12), oracle.Answer(12));
}

}  // namespace
}  // namespace weir::engine
