// SPDX-License-Identifier: Apache-2.0
// Known failures of comparable servers in sampling, as stories that must end well here. One test per
// case, named by its code. The sampler of the reference kernels is under test where a distribution
// is, whole clusters on a fake clock where batches, drafts and retries are.
#include <cmath>
#include <map>

#include "kernels/op/ops.h"
#include "kernels/ref/ref_backend.h"
#include "tests/scenario/scenario.h"

namespace weir::sim {
namespace {

using engine::EngineState;

RequestSpec Plain(uint32_t prompt, uint32_t answer) {
  RequestSpec spec;
  spec.prompt_tokens = prompt;
  spec.new_tokens_max = answer;
  spec.stop_tokens.clear();
  return spec;
}

ClusterConfig OnePair(uint32_t drafts = 3, uint32_t vocab = 1024) {
  ClusterConfig config = Scenario::Small();
  config.prefill = config.decode = 1;
  config.blocks = 512;
  config.decode_slots = 64;
  config.prefill_slots = 64;
  config.model.draft_max = drafts;
  config.model.vocab = vocab;
  return config;
}

std::vector<TokenId> Answer(const ClusterConfig& config, const RequestSpec& spec,
                            uint64_t* steps = nullptr) {
  Scenario s(config);
  const ClientId id = s.Ask(spec);
  s.ExpectWhole(id);
  if (steps != nullptr) *steps = s.Sum(Role::kDecode, &EngineState::steps);
  const std::vector<TokenId> text = s.Text(id);
  s.Ends();
  return text;
}

TEST(SAMP_D56, PenaltiesActWithDraftsAsWithout) {
  std::vector<std::vector<TokenId>> texts;
  for (const float penalty : {-2.0f, 0.0f, 2.0f}) {
    RequestSpec spec = Plain(24, 120);
    spec.frequency_penalty = penalty;
    uint64_t plain_steps = 0;
    uint64_t drafted_steps = 0;
    const auto plain = Answer(OnePair(0, 68), spec, &plain_steps);
    const auto drafted = Answer(OnePair(3, 68), spec, &drafted_steps);
    EXPECT_EQ(drafted, plain) << penalty;
    EXPECT_LT(drafted_steps, plain_steps);  // drafts were accepted
    for (const auto& other : texts) EXPECT_NE(plain, other) << penalty;
    texts.push_back(plain);
  }
  for (const bool presence : {false, true}) {
    RequestSpec spec = Plain(24, 120);
    (presence ? spec.presence_penalty : spec.repetition_penalty) = 1.5f;
    const auto plain = Answer(OnePair(0, 68), spec);
    EXPECT_EQ(Answer(OnePair(3, 68), spec), plain);
    EXPECT_NE(plain, texts[1]);
  }
}

TEST(SAMP_D57, BannedTokensNeverAppear) {
  const ClusterConfig config = OnePair(3, 68);
  // The 20 likeliest tokens over some answers.
  std::map<TokenId, int> uses;
  RequestSpec spec = Plain(16, 16);
  spec.temperature = 1;
  {
    Scenario s(config);
    for (const ClientId id : s.AskMany(50, spec)) {
      s.ExpectWhole(id);
      for (const TokenId token : s.Text(id)) ++uses[token];
    }
    s.Ends();
  }
  std::vector<std::pair<int, TokenId>> order;
  for (const auto& [token, count] : uses) order.emplace_back(-count, token);
  std::sort(order.begin(), order.end());
  ASSERT_GE(order.size(), 20u);
  std::set<TokenId> banned;
  for (size_t i = 0; i < 20; ++i) banned.insert(order[i].second);

  for (const TokenId token : banned) spec.logit_bias.emplace_back(token, -100.0f);
  spec.min_p = 0.9f;
  std::vector<std::vector<TokenId>> texts[2];
  for (const bool drafts : {false, true}) {
    Scenario s(OnePair(drafts ? 3 : 0, 68));
    for (uint32_t i = 0; i < 200; ++i) {
      spec.prompt.clear();
      for (uint32_t t = 0; t < 12; ++t) spec.prompt.push_back(static_cast<TokenId>(4 + (i * 7 + t * 5) % 60));
      spec.sampling_seed = i;
      const ClientId id = s.Ask(spec);
      s.ExpectWhole(id);
      for (const TokenId token : s.Text(id)) ASSERT_EQ(banned.count(token), 0u) << token;
      texts[drafts ? 1 : 0].push_back(s.Text(id));
    }
    s.Ends();
  }
  EXPECT_EQ(texts[0], texts[1]);
}

// Draws one token at each of many positions from the same 16 logits.
std::vector<int> Draws(const std::vector<float>& logits, kernels::SampleRow row, int draws,
                       const std::vector<int32_t>& history,
                       const std::vector<std::pair<int32_t, float>>& bias) {
  const auto backend = kernels::ref::NewRefBackend();
  const auto stream = backend->NewStream();
  std::vector<kernels::DeviceAddress> taken;
  const auto put = [&](const auto& values, kernels::DType dtype) {
    const size_t bytes = std::max<size_t>(values.size(), 1) * sizeof(values[0]);
    taken.push_back(*backend->Allocate(bytes));
    stream->CopyIn(taken.back(), values.data(), values.size() * sizeof(values[0]));
    return kernels::Tensor{taken.back(), dtype, {static_cast<int64_t>(values.size()), 1, 1}};
  };
  std::vector<int32_t> bias_token;
  std::vector<float> bias_value;
  for (const auto& [token, value] : bias) {
    bias_token.push_back(token);
    bias_value.push_back(value);
  }
  row.bias_end = static_cast<int32_t>(bias.size());
  row.history_end = static_cast<int32_t>(history.size());
  std::vector<kernels::SampleRow> rows;
  std::vector<float> all;
  for (int i = 0; i < draws; ++i) {
    row.position = i;
    rows.push_back(row);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  kernels::SampleArgs args;
  args.rows = draws;
  args.vocab = static_cast<int>(logits.size());
  args.logits = put(all, kernels::DType::kF32);
  args.params = put(rows, kernels::DType::kU8);
  args.bias_token = put(bias_token, kernels::DType::kI32);
  args.bias_value = put(bias_value, kernels::DType::kF32);
  args.history = put(history, kernels::DType::kI32);
  args.adjusted = put(logits, kernels::DType::kF32);
  args.order = put(std::vector<int32_t>(logits.size()), kernels::DType::kI32);
  args.counts = put(std::vector<int32_t>(logits.size()), kernels::DType::kI32);
  std::vector<kernels::SampleOut> out(rows.size());
  args.out = put(out, kernels::DType::kU8);
  backend->ops().Sample(*stream, args);
  stream->CopyOut(out.data(), args.out.address, out.size() * sizeof(out[0]));
  for (const kernels::DeviceAddress at : taken) backend->Free(at);
  std::vector<int> counts(logits.size());
  for (const kernels::SampleOut& one : out) ++counts[static_cast<size_t>(one.token)];
  return counts;
}

// Chi-square of what was drawn against what should be; true at p > 0.01.
bool Fits(const std::vector<int>& counts, std::vector<double> weight) {
  double total = 0;
  for (const double w : weight) total += w;
  int draws = 0;
  for (const int count : counts) draws += count;
  double square = 0;
  int kept = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (weight[i] == 0) {
      if (counts[i] > 0) return false;
      continue;
    }
    const double expected = draws * weight[i] / total;
    square += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++kept;
  }
  // The 99 % point by Wilson and Hilferty; 2.326 is the normal's.
  const double freedom = std::max(kept - 1, 1);
  const double spread = 2 / (9 * freedom);
  return square < freedom * std::pow(1 - spread + 2.326 * std::sqrt(spread), 3);
}

TEST(SAMP_D57, DrawsFollowTheDistributionThatWasAskedFor) {
  constexpr int kSymbols = 16;
  constexpr int kDraws = 20000;
  std::vector<float> logits;
  for (int i = 0; i < kSymbols; ++i) logits.push_back(0.35f * static_cast<float>((i * 7) % kSymbols));
  const auto weights = [&](double temperature, double min_p,
                           const std::vector<std::pair<int32_t, float>>& bias,
                           const std::vector<int32_t>& history, double frequency) {
    std::vector<double> logit(logits.begin(), logits.end());
    for (const auto& [token, value] : bias) logit[static_cast<size_t>(token)] += value;
    for (const int32_t token : history) logit[static_cast<size_t>(token)] -= frequency;
    const double top = *std::max_element(logit.begin(), logit.end());
    std::vector<double> weight;
    for (const double x : logit) {
      const double w = std::exp((x - top) / temperature);
      weight.push_back(w < min_p || w < 1e-30 ? 0 : w);
    }
    return weight;
  };
  const std::vector<std::pair<int32_t, float>> bans = {{9, -100}, {2, -100}, {11, 3}};
  const std::vector<int32_t> history = {4, 4, 13};
  EXPECT_TRUE(Fits(Draws(logits, {.seed = 1}, kDraws, {}, {}), weights(1, 0, {}, {}, 0)));
  EXPECT_TRUE(Fits(Draws(logits, {.seed = 2}, kDraws, {}, bans), weights(1, 0, bans, {}, 0)));
  EXPECT_TRUE(Fits(Draws(logits, {.seed = 3, .temperature = 0.6f, .min_p = 0.2f}, kDraws, {}, bans),
                   weights(0.6, 0.2, bans, {}, 0)));
  kernels::SampleRow penalised{.seed = 4};
  penalised.frequency_penalty = 1.5f;
  EXPECT_TRUE(Fits(Draws(logits, penalised, kDraws, history, {}), weights(1, 0, {}, history, 1.5)));
  // And the test can tell: another temperature is another distribution.
  EXPECT_FALSE(Fits(Draws(logits, {.seed = 5}, kDraws, {}, {}), weights(0.9, 0, {}, {}, 0)));
}

TEST(SAMP_D58, ASeedGivesTheSameAnswerWhereverItRuns) {
  RequestSpec spec = Plain(40, 40);
  spec.temperature = 1;
  spec.sampling_seed = 77;
  spec.prompt.clear();
  for (int i = 0; i < 40; ++i) spec.prompt.push_back(5 + i * 3);
  const std::vector<TokenId> text = Answer(OnePair(), spec);
  EXPECT_EQ(Answer(OnePair(), spec), text);   // again, idle
  EXPECT_EQ(Answer(OnePair(0), spec), text);  // without drafts
  ClusterConfig together = OnePair();
  together.paired = true;  // both roles in one process
  EXPECT_EQ(Answer(together, spec), text);
  {
    Scenario s(OnePair());  // busy, among others
    RequestSpec other = Plain(90, 60);
    other.temperature = 1;
    s.AskMany(12, other);
    const ClientId id = s.Ask(spec);
    other.prompt_tokens = 17;
    s.AskMany(12, other);
    s.ExpectWhole(id);
    EXPECT_EQ(s.Text(id), text);
    s.Ends();
  }
  // The choices of one request draw apart, each as it does alone.
  std::set<std::vector<TokenId>> choices = {text};
  Scenario s(OnePair());
  std::vector<ClientId> all;
  for (uint64_t i = 1; i < 4; ++i) {
    spec.sampling_seed = MixInto(77, i);
    all.push_back(s.Ask(spec));
  }
  for (const ClientId id : all) {
    s.ExpectWhole(id);
    choices.insert(s.Text(id));
  }
  EXPECT_EQ(choices.size(), 4u);
  spec.sampling_seed = MixInto(77, 2);
  EXPECT_EQ(choices.count(Answer(OnePair(), spec)), 1u);
  s.Ends();
}

TEST(SAMP_D59, GreedyAnswersStandUnderLoadAndRetriesAfterCancels) {
  std::vector<RequestSpec> specs;
  std::vector<std::vector<TokenId>> solo;
  {
    Scenario s(OnePair());
    for (uint32_t i = 0; i < 64; ++i) {
      RequestSpec spec = Plain(8 + i % 40, 12);
      for (uint32_t t = 0; t < spec.prompt_tokens; ++t) {
        spec.prompt.push_back(static_cast<TokenId>(4 + (i * 131 + t * 17) % 1000));
      }
      const ClientId id = s.Ask(spec);
      s.ExpectWhole(id);
      solo.push_back(s.Text(id));
      specs.push_back(spec);
    }
    s.Ends();
  }
  for (int round = 0; round < 10; ++round) {
    Scenario s(OnePair());
    std::vector<ClientId> all;
    for (const RequestSpec& spec : specs) all.push_back(s.Ask(spec));
    if (round >= 5) {
      s.RunUntilReceived(all[static_cast<size_t>(round)], 4);
      for (size_t i = 0; i < 5; ++i) {
        const size_t at = (static_cast<size_t>(round) * 11 + i * 13) % all.size();
        if (!s.At(all[at]).over()) s->Withdraw(all[at]);
        all[at] = s.Ask(specs[at]);
      }
    }
    for (size_t i = 0; i < all.size(); ++i) {
      s.ExpectWhole(all[i]);
      EXPECT_EQ(s.Text(all[i]), solo[i]) << "prompt " << i << ", round " << round;
    }
    s.Ends();
  }
}

}  // namespace
}  // namespace weir::sim
