// SPDX-License-Identifier: Apache-2.0
#include "engine/model/script_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "base/stdx/random.h"
#include "engine/model/stand_in_config.h"
#include "engine/model/stand_in_model.h"

namespace weir::engine {
namespace {

constexpr size_t kScriptBytesMax = 16u << 20;
constexpr int kTokenStore = 0;
constexpr int kCarryStore = 1;

struct TokenRow {
  int32_t token = 0;
  uint32_t position = 0;
};

// What a row leaves to the next: the entry chosen at the end of the prompt and the text to echo.
struct Carry {
  int32_t entry = -1;
  uint32_t position = 0;
  uint32_t echo_first = 0;
  uint32_t echo_count = 0;
  int32_t thinks = 0;
  uint32_t unused[3] = {0, 0, 0};
};
static_assert(sizeof(Carry) == 32);

CacheLayout ScriptLayout(const ScriptConfig& config) {
  const uint32_t ring = 1 + 2 * (config.draft_max + 1);
  return CacheLayout(
      config.block_tokens,
      {{"tokens", StoreKind::kBlock, Part::kDecoder, 1, 1, sizeof(TokenRow), 0},
       {"entry", StoreKind::kCarry, Part::kDecoder, 1, 1, sizeof(Carry), ring}});
}

class ScriptModel final : public StandInModel {
 public:
  ScriptModel(const ScriptConfig& config, const CacheLayout& layout, const KvMemory& memory)
      : StandInModel(memory, config.step_delay_us), config_(config), layout_(layout) {}

 private:
  void Run(const StepPlan& plan) override {
    for (const StepRow& row : plan.rows) {
      RunGroup(plan.slots[static_cast<size_t>(row.slot.value)], row,
               std::span(plan.tokens).subspan(row.token_offset, row.count));
    }
  }

  void RunGroup(const SlotView& slot, const StepRow& row, std::span<const TokenId> inputs) {
    const bool verify = row.kind == RowKind::kVerify;
    Accepted accepted;
    accepted.slot = row.slot;
    accepted.token_offset = static_cast<uint32_t>(result_.tokens.size());
    accepted.draft_offset = static_cast<uint32_t>(result_.drafts.size());
    bool open = true;  // all drafts so far were right
    Carry carry;
    for (uint32_t i = 0; i < row.count; ++i) {
      const Position p = row.first + i;
      if (p >= row.write_floor) StoreAs(TokenAt(slot, p), TokenRow{inputs[i], p});
      carry = Step(slot, p);
      if (!open || !(verify || (row.sample && i + 1 == row.count))) continue;
      const TokenId token = Say(slot, carry, p + 1);
      result_.tokens.push_back(token);
      ++accepted.count;
      open = i + 1 < row.count && token == inputs[i + 1];
      if (!open) Propose(slot, carry, p + 1, token, &accepted);
    }
    if (accepted.count == 0) return;
    if (slot.sampling->logprobs) Score(*slot.sampling, &accepted);
    result_.accepted.push_back(accepted);
  }

  Carry Step(const SlotView& slot, Position p) {
    Carry carry;
    if (p + 1 == slot.prompt_tokens) {
      carry = ChooseEntry(slot, p);
    } else if (p >= slot.prompt_tokens) {
      carry = LoadAs<Carry>(CarryAt(slot, p - 1));
      // Another position's carry would go on with a wrong answer unnoticed; say nothing instead.
      if (carry.position + 1 != p) carry.entry = -1;
    }
    carry.position = p;
    StoreAs(CarryAt(slot, p), carry);
    return carry;
  }

  Carry ChooseEntry(const SlotView& slot, Position last) {
    Carry carry;
    prompt_.clear();
    for (Position p = 0; p <= last; ++p) prompt_.push_back(Read(slot, p));
    carry.thinks = !prompt_.empty() && prompt_.back() == config_.think_token ? 1 : 0;
    auto begin = prompt_.begin();
    auto end = prompt_.end();
    if (config_.user_token >= 0) {
      const auto user = std::find(prompt_.rbegin(), prompt_.rend(), config_.user_token);
      if (user != prompt_.rend()) begin = user.base();
      end = std::find(begin, prompt_.end(), config_.assistant_token);
    }
    carry.echo_first = static_cast<uint32_t>(begin - prompt_.begin());
    carry.echo_count = static_cast<uint32_t>(end - begin);
    carry.entry = static_cast<int32_t>(config_.entries.size()) - 1;
    for (size_t i = 0; i + 1 < config_.entries.size(); ++i) {
      const auto& when = config_.entries[i].when;
      const bool occurs = std::any_of(when.begin(), when.end(), [&](const auto& run) {
        return std::search(begin, end, run.begin(), run.end()) != end;
      });
      if (!occurs) continue;
      carry.entry = static_cast<int32_t>(i);
      break;
    }
    return carry;
  }

  // The token at `position` of the sequence, by the entry that the carry names.
  TokenId Say(const SlotView& slot, const Carry& carry, Position position) const {
    const size_t answered = position - std::min<Position>(position, slot.prompt_tokens);
    const bool may_stop = answered >= slot.sampling->min_tokens;
    const TokenId stop = may_stop ? StopToken(*slot.sampling) : config_.filler;
    if (carry.entry < 0 || static_cast<size_t>(carry.entry) >= config_.entries.size()) return stop;
    const ScriptEntry& entry = config_.entries[static_cast<size_t>(carry.entry)];
    size_t index = answered;
    if (carry.thinks != 0) {
      if (index < entry.reasoning.size()) return entry.reasoning[index];
      index -= entry.reasoning.size();
      if (index == 0) return config_.think_end_token;
      --index;
    }
    if (index < entry.emit.size()) return entry.emit[index];
    index -= entry.emit.size();
    if (entry.echo) {
      if (index < carry.echo_count) {
        return Read(slot, carry.echo_first + static_cast<Position>(index));
      }
      index -= carry.echo_count;
    }
    return index < entry.after.size() ? entry.after[index] : stop;
  }

  TokenId StopToken(const SamplingParams& sampling) const {
    if (!config_.stop_tokens.empty()) return config_.stop_tokens.front();
    return sampling.stop_tokens.empty() ? config_.filler : sampling.stop_tokens.front();
  }

  // Two guesses of three are right.
  void Propose(const SlotView& slot, const Carry& carry, Position next, TokenId token,
               Accepted* accepted) {
    for (uint32_t i = 1; i <= config_.draft_max && next + i < config_.positions_max; ++i) {
      const bool hit = Mix64(next + i) % 3 != 0;
      result_.drafts.push_back(hit ? Say(slot, carry, next + i) : config_.filler);
      result_.confidence.push_back(hit ? 0.9f : 0.3f);
      ++accepted->draft_count;
    }
  }

  void Score(const SamplingParams& sampling, Accepted* accepted) {
    accepted->score_offset = static_cast<int32_t>(result_.scores.size());
    for (uint32_t i = 0; i < accepted->count; ++i) {
      const TokenId token = result_.tokens[accepted->token_offset + i];
      TokenScore& score = result_.scores.emplace_back();
      score.logprob = -0.01f;
      for (uint32_t k = 0; k < std::min(sampling.top_logprobs, config_.vocab); ++k) {
        const auto id = static_cast<TokenId>((static_cast<uint32_t>(token) + k) % config_.vocab);
        score.top.emplace_back(id, k == 0 ? -0.01f : -4.5f - static_cast<float>(k));
      }
    }
  }

  TokenId Read(const SlotView& slot, Position p) const {
    const auto row = LoadAs<TokenRow>(TokenAt(slot, p));
    return row.position == p ? row.token : config_.filler;
  }
  std::byte* TokenAt(const SlotView& slot, Position p) const {
    const auto& pages = slot.pages[static_cast<int>(Part::kDecoder)];
    const uint32_t block = p / layout_.block_tokens();
    WEIR_CHECK(block < pages.size() && pages[block] >= 0);
    return memory_.Page(Part::kDecoder, pages[block]) +
           layout_.PageOffset(kTokenStore, 0, p % layout_.block_tokens());
  }
  std::byte* CarryAt(const SlotView& slot, Position p) const {
    WEIR_CHECK(slot.state >= 0 && slot.state < memory_.state_count);
    return memory_.State(slot.state) + layout_.StateOffset(kCarryStore, 0, p);
  }

  const ScriptConfig& config_;
  const CacheLayout& layout_;
  std::vector<TokenId> prompt_;
};

class LoadedScriptModel final : public LoadedModel {
 public:
  explicit LoadedScriptModel(const ScriptConfig& config) : config_(config) {
    info_.family = "weir_script";
    info_.vocab = config.vocab;
    info_.positions_max = config.positions_max;
    info_.draft_max = config.draft_max;
    info_.layout = ScriptLayout(config);
    info_.stop_tokens = config.stop_tokens;
    std::string text = absl::StrCat("weir_script;", config.vocab, ";", config.block_tokens, ";",
                                    config.draft_max, ";", config.positions_max);
    const auto add = [&text](const std::vector<TokenId>& ids) {
      for (const TokenId id : ids) absl::StrAppend(&text, ",", id);
      text += ';';
    };
    for (const ScriptEntry& entry : config.entries) {
      for (const auto& when : entry.when) add(when);
      add(entry.reasoning);
      add(entry.emit);
      text += entry.echo ? 'e' : 'n';
      add(entry.after);
    }
    const Sha256Digest digest = Sha256(BytesOf(text));
    info_.digest.assign(reinterpret_cast<const char*>(digest.data()), digest.size());
  }

  const ModelInfo& info() const override { return info_; }
  std::unique_ptr<Model> Instantiate(const KvMemory& memory) const override {
    return std::make_unique<ScriptModel>(config_, info_.layout, memory);
  }

 private:
  const ScriptConfig config_;
  ModelInfo info_;
};

absl::Status ReadScript(const std::string& path, ScriptConfig* config) {
  WEIR_ASSIGN(const std::string text, ReadWholeFile(path, kScriptBytesMax));
  WEIR_ASSIGN(StandInConfig json, StandInConfig::Parse(path, text));
  std::string comment;
  json.Read("comment", &comment);
  json.Read("user_token", &config->user_token);
  json.Read("assistant_token", &config->assistant_token);
  json.Read("think_token", &config->think_token);
  json.Read("think_end_token", &config->think_end_token);
  json.Read("filler", &config->filler);
  json.Read("stop_tokens", &config->stop_tokens);
  for (StandInConfig& object : json.Objects("entries")) {
    ScriptEntry& entry = config->entries.emplace_back();
    uint32_t echo = 0;
    object.Read("name", &entry.name);
    object.Read("when", &entry.when);
    object.Read("reasoning", &entry.reasoning);
    object.Read("emit", &entry.emit);
    object.Read("echo", 0, 1, &echo);
    object.Read("after", &entry.after);
    entry.echo = echo != 0;
    WEIR_TRY(object.Finish());
  }
  return json.Finish();
}

}  // namespace

absl::Status ValidateScript(const ScriptConfig& config) {
  const auto bad = [](std::string_view field, std::string_view what) {
    return Error(Reason::kBadField,
                 absl::StrCat("script.json: ", AbslView(field), " ", AbslView(what)), field);
  };
  if (config.entries.empty()) return bad("entries", "must not be empty");
  if (!config.entries.back().when.empty()) return bad("entries", "must end with the default");
  const auto fits = [&config](const std::vector<TokenId>& ids) {
    return std::all_of(ids.begin(), ids.end(), [&config](TokenId id) {
      return id >= 0 && static_cast<uint32_t>(id) < config.vocab;
    });
  };
  bool fit = fits(config.stop_tokens) && fits({config.filler});
  for (const ScriptEntry& entry : config.entries) {
    for (const auto& when : entry.when) {
      if (when.empty()) return bad("when", "must not hold an empty run");
      fit = fit && fits(when);
    }
    fit = fit && fits(entry.reasoning) && fits(entry.emit) && fits(entry.after);
    if (!entry.reasoning.empty() && !fits({config.think_end_token})) {
      return bad("think_end_token", "is needed by an entry with reasoning");
    }
  }
  if (!fit) return bad("entries", "hold ids outside the vocabulary");
  if (config.think_token >= 0 && !fits({config.think_end_token})) {
    return bad("think_end_token", "is needed with think_token");
  }
  return ScriptLayout(config).Validate();
}

std::shared_ptr<const LoadedModel> MakeScriptModel(const ScriptConfig& config) {
  return std::make_shared<LoadedScriptModel>(config);
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadScriptModel(const std::string& directory,
                                                                   const std::string& config_json,
                                                                   const LoadOptions& options) {
  ScriptConfig config;
  WEIR_ASSIGN(StandInConfig json, StandInConfig::Parse(directory + "/config.json", config_json));
  std::string model_type;
  json.Read("model_type", &model_type);
  json.Read("vocab_size", 1, 1 << 24, &config.vocab);
  json.Read("block_tokens", 1, 4096, &config.block_tokens);
  json.Read("draft_max", 0, 16, &config.draft_max);
  json.Read("positions_max", 2, 1u << 30, &config.positions_max);
  json.Read("step_delay_us", 0, 60'000'000, &config.step_delay_us);
  WEIR_TRY(json.Finish());
  if (options.block_tokens != 0) config.block_tokens = options.block_tokens;
  if (options.step_delay_us != 0) config.step_delay_us = options.step_delay_us;
  WEIR_TRY(ReadScript(directory + "/script.json", &config));
  WEIR_TRY(ValidateScript(config));
  return MakeScriptModel(config);
}

}  // namespace weir::engine
