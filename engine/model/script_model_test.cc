// SPDX-License-Identifier: Apache-2.0
#include "engine/model/script_model.h"

#include "engine/model/paged_runner_for_test.h"
#include "gtest/gtest.h"

namespace weir::engine {
namespace {

constexpr TokenId kUser = 2, kAssistant = 3, kThink = 4, kThinkEnd = 5, kStop = 1;

ScriptConfig Script() {
  ScriptConfig config;
  config.vocab = 100;
  config.block_tokens = 4;
  config.user_token = kUser;
  config.assistant_token = kAssistant;
  config.think_token = kThink;
  config.think_end_token = kThinkEnd;
  config.entries = {
      {.name = "weather", .when = {{50, 51}, {52}}, .reasoning = {30, 31}, .emit = {20, 21, 22}},
      {.name = "default", .when = {}, .reasoning = {40}, .emit = {10}, .echo = true, .after = {11}}};
  return config;
}

std::vector<TokenId> Say(const std::vector<TokenId>& prompt, uint32_t drafts) {
  const auto loaded = MakeScriptModel(Script());
  PagedRunner runner(*loaded);
  const SlotId slot = runner.Add(prompt, 0, {});
  runner.Generate(slot, 12, drafts);
  auto answer = runner.At(slot).answer;
  const auto end = std::find(answer.begin(), answer.end(), kStop);
  return {answer.begin(), end};
}

TEST(ScriptModel, ChoosesByTheLastUserTextAndThinksWhereThePromptOpenedIt) {
  using Ids = std::vector<TokenId>;
  for (uint32_t drafts = 0; drafts <= 3; ++drafts) {
    EXPECT_EQ(Say({0, kUser, 50, 51, kAssistant}, drafts), (Ids{20, 21, 22}));
    EXPECT_EQ(Say({0, kUser, 9, 52, kAssistant, kThink}, drafts),
              (Ids{30, 31, kThinkEnd, 20, 21, 22}));
    EXPECT_EQ(Say({0, kUser, 52, kAssistant, 20, kUser, 7, 8, kAssistant}, drafts),
              (Ids{10, 7, 8, 11}));
    EXPECT_EQ(Say({0, kUser, 7, kAssistant, kThink}, drafts), (Ids{40, kThinkEnd, 10, 7, 11}));
  }
}

TEST(ScriptModel, LostCarryOrTokensShow) {
  const auto loaded = MakeScriptModel(Script());
  for (const bool lose_carry : {true, false}) {
    PagedRunner runner(*loaded);
    const SlotId slot = runner.Add({0, kUser, 7, 8, 9, 6, kAssistant}, 0, {});
    runner.Generate(slot, 1, 0);
    auto& s = runner.At(slot);
    if (lose_carry) {
      std::memset(runner.memory().State(s.state), 0, loaded->info().layout.state_bytes());
    } else {
      std::memset(runner.memory().Page(Part::kDecoder, s.pages[1][0]), 0,
                  loaded->info().layout.page_bytes(Part::kDecoder));
    }
    runner.Generate(slot, 4, 0);
    EXPECT_NE(s.answer, (std::vector<TokenId>{10, 7, 8, 9}));
  }
}

TEST(ScriptModel, FillsUntilAStopMayCome) {
  const auto loaded = MakeScriptModel(Script());
  PagedRunner runner(*loaded);
  SamplingParams sampling;
  sampling.min_tokens = 6;
  sampling.logprobs = true;
  const SlotId slot = runner.Add({0, kUser, 52, kAssistant}, 0, sampling);
  runner.Generate(slot, 7, 0);
  EXPECT_EQ(runner.At(slot).answer, (std::vector<TokenId>{20, 21, 22, 0, 0, 0, kStop}));
  EXPECT_EQ(runner.At(slot).scores.size(), 7u);
}

TEST(ScriptModel, RefusesScriptsItCannotSay) {
  ScriptConfig config = Script();
  EXPECT_TRUE(ValidateScript(config).ok());
  config.entries[0].emit.push_back(100);
  EXPECT_EQ(ReasonOf(ValidateScript(config)), Reason::kBadField);
  config = Script();
  config.entries.pop_back();
  EXPECT_EQ(ReasonOf(ValidateScript(config)), Reason::kBadField);
}

}  // namespace
}  // namespace weir::engine
