// SPDX-License-Identifier: Apache-2.0
#include "engine/model/hash_model.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "base/stdx/planted.h"
#include "engine/model/stand_in_config.h"
#include "engine/model/stand_in_model.h"

namespace weir::engine {
namespace {

// Rows of one sequence in pages and rings.
class PagedAccess {
 public:
  PagedAccess(const CacheLayout& layout, const KvMemory& memory, const SlotView& slot)
      : layout_(layout), memory_(memory), slot_(slot) {}

  HashRow Ring(HashStore store, int layer, Position position) const {
    return LoadAs<HashRow>(RingAt(store, layer, position));
  }
  void SetRing(HashStore store, int layer, Position position, const HashRow& row) {
    StoreAs(RingAt(store, layer, position), row);
  }
  HashRow Block(HashStore store, Position position) const {
    return LoadAs<HashRow>(BlockAt(store, position));
  }
  void SetBlock(HashStore store, Position position, const HashRow& row) {
    StoreAs(BlockAt(store, position), row);
  }

 private:
  std::byte* RingAt(HashStore store, int layer, Position position) const {
    WEIR_CHECK(slot_.state >= 0 && slot_.state < memory_.state_count);
    return memory_.State(slot_.state) + layout_.StateOffset(store, layer, position);
  }
  std::byte* BlockAt(HashStore store, Position position) const {
    const Part part = store == kHashEncoderBlock ? Part::kEncoder : Part::kDecoder;
    const auto& pages = slot_.pages[static_cast<int>(part)];
    const uint32_t block = position / layout_.block_tokens();
    WEIR_CHECK(block < pages.size());
    const PageId page = pages[block];
    WEIR_CHECK(page >= 0 && page < memory_.page_count[static_cast<int>(part)]);
    return memory_.Page(part, page) + layout_.PageOffset(store, 0, position % layout_.block_tokens());
  }

  const CacheLayout& layout_;
  const KvMemory& memory_;
  const SlotView& slot_;
};

// Rows computed ahead of the sequence without touching its pages: what a drafter would guess.
class AheadAccess {
 public:
  AheadAccess(const PagedAccess& below, Position start, std::vector<std::pair<int, HashRow>>* rows)
      : below_(below), start_(start), rows_(*rows) {
    rows_.clear();
  }

  HashRow Ring(HashStore store, int layer, Position position) const {
    return position < start_ ? below_.Ring(store, layer, position)
                             : Find(store * 16 + layer, position);
  }
  void SetRing(HashStore store, int layer, Position, const HashRow& row) {
    rows_.emplace_back(store * 16 + layer, row);
  }
  HashRow Block(HashStore store, Position position) const {
    return position < start_ ? below_.Block(store, position) : Find(store * 16, position);
  }
  void SetBlock(HashStore store, Position, const HashRow& row) {
    rows_.emplace_back(store * 16, row);
  }

 private:
  HashRow Find(int key, Position position) const {
    for (const auto& [row_key, row] : rows_) {
      if (row_key == key && row.position == position) return row;
    }
    return {};
  }

  const PagedAccess& below_;
  const Position start_;
  std::vector<std::pair<int, HashRow>>& rows_;
};

class HashModel final : public StandInModel {
 public:
  HashModel(const HashConfig& config, const CacheLayout& layout, const KvMemory& memory)
      : StandInModel(memory, config.step_delay_us), config_(config), layout_(layout) {}

 private:
  void Run(const StepPlan& plan) override {
    for (const StepRow& row : plan.rows) RunGroup(plan, row);
  }

  void RunGroup(const StepPlan& plan, const StepRow& row) {
    const SlotView& slot = plan.slots[static_cast<size_t>(row.slot.value)];
    PagedAccess access(layout_, memory_, slot);
    HashBounds bounds{slot.tail_start, row.visible_from, row.write_floor};
    if (IsPlanted(Planted::kSkipWriteFloor)) bounds.write_floor = 0;
    const std::span<const TokenId> inputs(plan.tokens.data() + row.token_offset, row.count);
    hidden_.clear();
    for (uint32_t i = 0; i < row.count; ++i) {
      hidden_.push_back(ComputeHashRow(config_, access, row.first + i, inputs[i], bounds));
    }
    if (row.kind == RowKind::kVerify) {
      Verify(slot, row, inputs, access);
    } else if (row.sample) {
      SampleAfter(slot, row, inputs, access);
    }
  }

  // Every row was computed, right or wrong; the cursor decides which of them count.
  void Verify(const SlotView& slot, const StepRow& row, std::span<const TokenId> inputs,
              const PagedAccess& access) {
    Accepted accepted = Begin(row, *slot.sampling);
    StartAnswer(slot, row.first, inputs.first(1));
    TokenId token = 0;
    for (uint32_t i = 0; i < row.count; ++i) {
      token = Choose(*slot.sampling, hidden_[i], row.first + i + 1);
      ++accepted.count;
      if (i + 1 == row.count || token != inputs[i + 1]) break;
      answer_.push_back(token);
    }
    Propose(slot, row, row.first + accepted.count, token, hidden_[accepted.count - 1u], access,
            &accepted);
    result_.accepted.push_back(accepted);
  }

  void SampleAfter(const SlotView& slot, const StepRow& row, std::span<const TokenId> inputs,
                   const PagedAccess& access) {
    Accepted accepted = Begin(row, *slot.sampling);
    StartAnswer(slot, row.first, inputs);
    const Position next = row.first + row.count;
    const TokenId token = Choose(*slot.sampling, hidden_.back(), next);
    accepted.count = 1;
    Propose(slot, row, next, token, hidden_.back(), access, &accepted);
    result_.accepted.push_back(accepted);
  }

  Accepted Begin(const StepRow& row, const SamplingParams& sampling) {
    Accepted accepted;
    accepted.slot = row.slot;
    accepted.token_offset = static_cast<uint32_t>(result_.tokens.size());
    accepted.draft_offset = static_cast<uint32_t>(result_.drafts.size());
    if (sampling.logprobs) accepted.score_offset = static_cast<int32_t>(result_.scores.size());
    return accepted;
  }

  // answer_ = the answer's tokens before position first + inputs.size(). The emitted list may or may
  // not hold the group's own inputs yet; positions say which are missing.
  void StartAnswer(const SlotView& slot, Position first, std::span<const TokenId> inputs) {
    answer_.assign(slot.emitted.begin(), slot.emitted.end());
    const Position end = first + static_cast<Position>(inputs.size());
    const size_t wanted = end > slot.prompt_tokens ? end - slot.prompt_tokens : 0;
    if (answer_.size() > wanted) answer_.resize(wanted);
    while (answer_.size() < wanted) {
      const Position at = slot.prompt_tokens + static_cast<Position>(answer_.size());
      answer_.push_back(at >= first ? inputs[at - first] : 0);
    }
  }

  TokenId Choose(const SamplingParams& sampling, uint64_t hidden, Position position) {
    TokenScore* score = nullptr;
    if (sampling.logprobs) score = &result_.scores.emplace_back();
    const TokenId token = ChooseHashToken(config_, hidden, position, sampling, answer_, score);
    result_.tokens.push_back(token);
    return token;
  }

  // Drafts for the positions after `next`, where `token` was chosen. Looks ahead for the truth and
  // stops at the first guess that misses, since nothing after it can be accepted.
  void Propose(const SlotView& slot, const StepRow& row, Position next, TokenId token,
               uint64_t hidden, const PagedAccess& below, Accepted* accepted) {
    AheadAccess access(below, next, &ahead_);
    const HashBounds bounds{slot.tail_start, row.visible_from, 0};
    bool missed = false;
    answer_.push_back(token);
    while (accepted->draft_count < config_.draft_max && next + 1 < config_.positions_max) {
      TokenId draft = config_.emit_first;
      if (!missed) {
        hidden = ComputeHashRow(config_, access, next, token, bounds);
        token = ChooseHashToken(config_, hidden, next + 1, *slot.sampling, answer_, nullptr);
        draft = DraftHashToken(config_, hidden, token);
        missed = draft != token;
        answer_.push_back(token);
      }
      result_.drafts.push_back(draft);
      result_.confidence.push_back(missed ? 0.3f : 0.9f);
      ++accepted->draft_count;
      ++next;
    }
  }

  const HashConfig& config_;
  const CacheLayout& layout_;
  // Of the outstanding step; capacity is kept.
  std::vector<uint64_t> hidden_;
  std::vector<TokenId> answer_;
  std::vector<std::pair<int, HashRow>> ahead_;
};

class LoadedHashModel final : public LoadedModel {
 public:
  explicit LoadedHashModel(const HashConfig& config) : config_(config) {
    info_.family = "weir_hash";
    info_.vocab = config.vocab;
    info_.positions_max = config.positions_max;
    info_.window = config.window;
    info_.window_layers = 2;
    info_.history = kHashHistoryTokens;
    info_.decoder_tail_rows = config.decoder_tail_rows;
    info_.draft_max = config.draft_max;
    info_.layout = HashLayout(config);
    info_.stop_tokens = config.stop_tokens;
    std::string text = absl::StrCat(
        "weir_hash;", config.vocab, ";", config.block_tokens, ";", config.window, ";",
        config.decoder_tail_rows, ";", config.draft_max, ";", config.positions_max, ";",
        config.stop_probability, ";", config.emit_first, ";", config.salt);
    for (const TokenId id : config.stop_tokens) absl::StrAppend(&text, ";", id);
    const Sha256Digest digest = Sha256(BytesOf(text));
    info_.digest.assign(reinterpret_cast<const char*>(digest.data()), digest.size());
  }

  const ModelInfo& info() const override { return info_; }
  std::unique_ptr<Model> Instantiate(const KvMemory& memory) const override {
    return std::make_unique<HashModel>(config_, info_.layout, memory);
  }

 private:
  const HashConfig config_;
  ModelInfo info_;
};

}  // namespace

absl::Status ValidateHashConfig(const HashConfig& config) {
  const auto bad = [](std::string_view field, std::string_view what) {
    return Error(Reason::kBadField,
                 absl::StrCat("config.json: ", AbslView(field), " ", AbslView(what)), field);
  };
  if (config.emit_first < 0) return bad("emit_first", "must not be negative");
  if (config.vocab < static_cast<uint64_t>(config.emit_first) + 64) {
    return bad("vocab_size", "must leave at least 64 ids above emit_first");
  }
  if (config.block_tokens == 0 || config.block_tokens > 4096 || config.block_tokens % 2 != 0) {
    return bad("block_tokens", "must be even, 2 to 4096");
  }
  if (config.window == 0 || config.window > 4096) return bad("window", "must be 1 to 4096");
  if (config.draft_max > 16) return bad("draft_max", "must be at most 16");
  if (config.decoder_tail_rows == 0) return bad("decoder_tail_rows", "must be positive");
  if (config.positions_max < 2) return bad("positions_max", "must be at least 2");
  for (const TokenId id : config.stop_tokens) {
    if (id < 0 || static_cast<uint32_t>(id) >= config.vocab) {
      return bad("stop_tokens", "must be ids of the vocabulary");
    }
  }
  return HashLayout(config).Validate();
}

std::shared_ptr<const LoadedModel> MakeHashModel(const HashConfig& config) {
  return std::make_shared<LoadedHashModel>(config);
}

absl::StatusOr<HashConfig> ParseHashConfig(const std::string& directory,
                                           const std::string& config_json,
                                           const LoadOptions& options) {
  HashConfig config;
  WEIR_ASSIGN(StandInConfig json, StandInConfig::Parse(directory + "/config.json", config_json));
  std::string model_type;
  json.Read("model_type", &model_type);
  json.Read("vocab_size", 64, 1 << 24, &config.vocab);
  json.Read("block_tokens", 2, 4096, &config.block_tokens);
  json.Read("window", 1, 4096, &config.window);
  config.decoder_tail_rows = config.window;
  json.Read("decoder_tail_rows", 1, 1 << 20, &config.decoder_tail_rows);
  json.Read("draft_max", 0, 16, &config.draft_max);
  json.Read("positions_max", 2, 1u << 30, &config.positions_max);
  json.Read("step_delay_us", 0, 60'000'000, &config.step_delay_us);
  json.Read("draft_hit_rate", &config.draft_hit_rate);
  json.Read("stop_probability", &config.stop_probability);
  json.Read("emit_first", &config.emit_first);
  json.Read("salt", &config.salt);
  json.Read("stop_tokens", &config.stop_tokens);
  WEIR_TRY(json.Finish());
  if (options.block_tokens != 0) config.block_tokens = options.block_tokens;
  if (options.step_delay_us != 0) config.step_delay_us = options.step_delay_us;
  return config;
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadHashModel(const std::string& directory,
                                                                 const std::string& config_json,
                                                                 const LoadOptions& options) {
  WEIR_ASSIGN(const HashConfig config, ParseHashConfig(directory, config_json, options));
  WEIR_TRY(ValidateHashConfig(config));
  return MakeHashModel(config);
}

}  // namespace weir::engine
