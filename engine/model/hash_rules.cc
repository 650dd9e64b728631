// SPDX-License-Identifier: Apache-2.0
#include "engine/model/hash_rules.h"

#include <array>
#include <cmath>
#include <limits>

namespace weir::engine {
namespace {

// Streams of RandomBits, one per question asked of a row's hash.
enum : uint64_t { kPickStream = 1, kStopStream, kDraftStream, kNoiseStream, kBiasStream };

constexpr int kChoices = 20;  // as many as a client may ask alternatives for
constexpr int kExtraChoices = 44;
constexpr float kTopLogit = 12;
constexpr float kLogitStep = 0.6f;

struct Choice {
  TokenId id = 0;
  float logit = 0;
};

struct Choices {
  std::array<Choice, kChoices + kExtraChoices> at;
  int count = 0;

  bool Has(TokenId id) const {
    return std::any_of(at.begin(), at.begin() + count,
                       [id](const Choice& choice) { return choice.id == id; });
  }
  void Add(TokenId id, float logit) {
    if (count < static_cast<int>(at.size())) at[static_cast<size_t>(count++)] = {id, logit};
  }
  Choice* begin() { return at.data(); }
  Choice* end() { return at.data() + count; }
};

bool Contains(std::span<const TokenId> ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool IsStop(const HashConfig& config, const SamplingParams& sampling, TokenId id) {
  return Contains(config.stop_tokens, id) || Contains(sampling.stop_tokens, id);
}

// The i-th try; uniform over the ids that may be emitted.
TokenId Draw(const HashConfig& config, uint64_t hidden, uint64_t i) {
  const uint64_t span = config.vocab - static_cast<uint64_t>(config.emit_first);
  return config.emit_first + static_cast<TokenId>(RandomBits(hidden, kPickStream, i) % span);
}

bool WantsStop(const HashConfig& config, uint64_t hidden, size_t answered,
               const SamplingParams& sampling) {
  return config.stop_probability > 0 && answered >= sampling.min_tokens &&
         RandomUnit(hidden, kStopStream, 0) < config.stop_probability;
}

TokenId StopTokenOf(const HashConfig& config, const SamplingParams& sampling) {
  if (!sampling.stop_tokens.empty()) return sampling.stop_tokens.front();
  return config.stop_tokens.empty() ? config.emit_first : config.stop_tokens.front();
}

bool Penalises(const SamplingParams& s) {
  return s.presence_penalty != 0 || s.frequency_penalty != 0 ||
         (s.repetition_penalty != 0 && s.repetition_penalty != 1);
}

void Penalise(const SamplingParams& sampling, std::span<const TokenId> answer, Choices* choices) {
  for (Choice& choice : *choices) {
    const auto uses = std::count(answer.begin(), answer.end(), choice.id);
    if (uses == 0) continue;
    choice.logit -= sampling.presence_penalty + sampling.frequency_penalty * static_cast<float>(uses);
    const float factor = sampling.repetition_penalty;
    if (factor > 0) choice.logit = choice.logit > 0 ? choice.logit / factor : choice.logit * factor;
  }
}

void ApplyBias(const HashConfig& config, uint64_t hidden, const SamplingParams& sampling,
               bool stop_masked, Choices* choices) {
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (stop_masked && IsStop(config, sampling, id)) continue;
    if (!choices->Has(id)) {
      const auto index = static_cast<uint64_t>(static_cast<uint32_t>(id));
      choices->Add(id, -4 * static_cast<float>(RandomUnit(hidden, kBiasStream, index)));
    }
    for (Choice& choice : *choices) {
      if (choice.id == id) choice.logit += bias;
    }
  }
}

// Cuts the sorted choices to those that top-k, top-p and min-p leave; at least one.
int KeptOf(const SamplingParams& sampling, Choices* choices) {
  int kept = choices->count;
  if (sampling.top_k > 0) kept = std::min(kept, sampling.top_k);
  const float top = choices->begin()->logit;
  double total = 0;
  for (int i = 0; i < kept; ++i) total += std::exp((choices->begin()[i].logit - top));
  double mass = 0;
  for (int i = 0; i < kept; ++i) {
    const double p = std::exp(choices->begin()[i].logit - top) / total;
    const bool below_p = sampling.top_p > 0 && sampling.top_p < 1 && mass >= sampling.top_p;
    const bool below_min = sampling.min_p > 0 && p * total < sampling.min_p;
    if (i > 0 && (below_p || below_min)) return i;
    mass += p;
  }
  return kept;
}

// argmax of logit / temperature plus Gumbel noise of (seed, position, token).
const Choice& PickNoisy(const SamplingParams& sampling, Position position, Choices* choices,
                        int kept) {
  const uint64_t key = RandomBits(sampling.seed, kNoiseStream, position);
  const Choice* best = choices->begin();
  double best_value = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < kept; ++i) {
    const Choice& choice = choices->begin()[i];
    const double unit = RandomUnit(key, 0, static_cast<uint32_t>(choice.id));
    const double noise = -std::log(-std::log(std::max(unit, 1e-300)) + 1e-300);
    const double value = choice.logit / sampling.temperature + noise;
    if (value > best_value) {
      best_value = value;
      best = &choice;
    }
  }
  return *best;
}

void FillScore(const SamplingParams& sampling, const Choice& picked, Choices* choices,
               TokenScore* score) {
  double total = 0;
  for (const Choice& choice : *choices) total += std::exp(double{choice.logit} - kTopLogit);
  const auto logprob = [total](const Choice& choice) {
    return static_cast<float>(choice.logit - kTopLogit - std::log(total));
  };
  score->logprob = logprob(picked);
  score->top.clear();
  const int tops = std::min(choices->count, static_cast<int>(sampling.top_logprobs));
  for (int i = 0; i < tops; ++i) {
    const Choice& choice = choices->begin()[i];
    score->top.emplace_back(choice.id, logprob(choice));
  }
}

}  // namespace

CacheLayout HashLayout(const HashConfig& config) {
  const uint32_t row = sizeof(HashRow);
  const uint32_t slack = 2 * (config.draft_max + 1);
  std::vector<Store> stores(6);
  stores[kHashEncoderBlock] = {"encoder.block", StoreKind::kBlock, Part::kEncoder, 1, 2, row, 0};
  stores[kHashDecoderBlock] = {"decoder.block", StoreKind::kBlock, Part::kDecoder, 1, 1, row, 0};
  stores[kHashEncoderWindow] = {"encoder.window", StoreKind::kWindow,   Part::kEncoder, 2, 1, row,
                                config.window + slack};
  stores[kHashDecoderWindow] = {"decoder.window", StoreKind::kWindow,   Part::kDecoder, 1, 1, row,
                                config.window + slack};
  stores[kHashRemainder] = {"remainder", StoreKind::kCarry, Part::kEncoder, 1, 1, row, slack};
  stores[kHashHistory] = {"history", StoreKind::kCarry,         Part::kEncoder, 1, 1, row,
                          kHashHistoryTokens + slack};
  return CacheLayout(config.block_tokens, std::move(stores));
}

TokenId ChooseHashToken(const HashConfig& config, uint64_t hidden, Position position,
                        const SamplingParams& sampling, std::span<const TokenId> answer,
                        TokenScore* score) {
  const bool stop = WantsStop(config, hidden, answer.size(), sampling);
  const bool penalises = Penalises(sampling);
  const bool scores = score != nullptr && sampling.logprobs;
  const bool plain = sampling.temperature <= 0 && sampling.logit_bias.empty() && !penalises;
  if (plain && stop && !scores) return StopTokenOf(config, sampling);

  Choices choices;
  if (stop) choices.Add(StopTokenOf(config, sampling), 2 * kTopLogit);
  const int wanted = plain && !scores ? 1 : kChoices;
  // Twice the tries: an id that is taken or stops is drawn anew. Running short is no error.
  for (uint64_t i = 0; i < 2 * kChoices && choices.count < wanted; ++i) {
    const TokenId id = Draw(config, hidden, i);
    if (choices.Has(id) || IsStop(config, sampling, id)) continue;
    choices.Add(id, kTopLogit - kLogitStep * static_cast<float>(choices.count));
  }
  if (choices.count == 0) return config.emit_first;
  if (plain && !scores) return choices.begin()->id;

  const bool stop_masked = answer.size() < sampling.min_tokens;
  ApplyBias(config, hidden, sampling, stop_masked, &choices);
  if (penalises) Penalise(sampling, answer, &choices);
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.logit > b.logit; });
  Choice picked = *choices.begin();
  if (sampling.temperature > 0) {
    picked = PickNoisy(sampling, position, &choices, KeptOf(sampling, &choices));
  }
  if (scores) FillScore(sampling, picked, &choices, score);
  return picked.id;
}

TokenId DraftHashToken(const HashConfig& config, uint64_t hidden, TokenId truth) {
  if (RandomUnit(hidden, kDraftStream, 0) < config.draft_hit_rate) return truth;
  const TokenId other = Draw(config, hidden, kChoices + 1);
  return other != truth ? other : config.emit_first + (truth == config.emit_first ? 1 : 0);
}

}  // namespace weir::engine
