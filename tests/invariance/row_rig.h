// SPDX-License-Identifier: Apache-2.0
//
// RowRig: one engine's worth of model, driven plan by plan with rows that the test names. It owns the
// pages of its sequences, scattered by a seed over memory that starts as one known byte, and keeps
// what every sampled row came to. One thread; a failure is a test failure. The inputs of rows are
// given, never taken from what was sampled, so that any two ways over the same tokens can be compared
// bit for bit: results, pages and state.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/stdx/check.h"
#include "base/stdx/random.h"
#include "engine/model/model.h"

namespace weir::engine {

// What a sampled row came to; floats by their bits.
struct RowResult {
  TokenId token = -1;
  std::vector<std::pair<TokenId, uint32_t>> scores;  // the token's own, then the best

  bool operator==(const RowResult&) const = default;
};

// Everything that a sequence left behind.
struct RowMemory {
  std::vector<std::byte> pages[kPartCount];  // in the order of its blocks
  std::vector<std::byte> state;

  bool operator==(const RowMemory&) const = default;
};

class RowRig {
 public:
  static constexpr int kSlots = 6;

  RowRig(std::shared_ptr<const LoadedModel> loaded, Position tokens_max, uint64_t seed)
      : loaded_(std::move(loaded)), blocks_(layout().BlocksFor(tokens_max)) {
    Random random(seed);
    const auto count = static_cast<PageId>(blocks_) * kSlots;
    for (int part = 0; part < kPartCount; ++part) {
      memory_.page_bytes[part] = layout().page_bytes(static_cast<Part>(part));
      if (memory_.page_bytes[part] == 0) continue;
      memory_.page_count[part] = count;
      bytes_[part].assign(memory_.page_bytes[part] * static_cast<size_t>(count), std::byte{0x7f});
      memory_.part_base[part] = bytes_[part].data();
      std::vector<PageId> ids = Shuffled(count, &random);
      for (int slot = 0; slot < kSlots; ++slot) {
        tables_[slot][part].assign(ids.begin() + slot * static_cast<int>(blocks_),
                                   ids.begin() + (slot + 1) * static_cast<int>(blocks_));
      }
    }
    memory_.state_bytes = layout().state_bytes();
    memory_.state_count = kSlots;
    state_.assign(memory_.state_bytes * kSlots, std::byte{0x7f});
    memory_.state_base = state_.data();
    const std::vector<PageId> states = Shuffled(kSlots, &random);
    for (int slot = 0; slot < kSlots; ++slot) {
      sampling_[slot].logprobs = true;
      sampling_[slot].top_logprobs = 20;
      SlotView& view = views_[static_cast<size_t>(slot)];
      for (int part = 0; part < kPartCount; ++part) view.pages[part] = tables_[slot][part];
      view.state = memory_.state_bytes > 0 ? states[static_cast<size_t>(slot)] : kNoPage;
      view.sampling = &sampling_[slot];
      view.prompt_tokens = tokens_max;
    }
    model_ = loaded_->Instantiate(memory_);
  }

  void SetTailStart(int slot, Position tail_start) {
    views_[static_cast<size_t>(slot)].tail_start = tail_start;
  }
  SamplingParams& sampling(int slot) { return sampling_[slot]; }

  struct Group {
    int slot = 0;
    RowKind kind = RowKind::kPrefill;
    Position first = 0;
    std::vector<TokenId> tokens;
    bool sample = false;  // prefill: after the last row
    // Verify: rows from here on, where not 0, are not the sequence's. The model may agree with such
    // a draft, for the sequence need not be its own answer; what follows is then no result of it.
    Position right = 0;
  };

  // One step. Results are kept by (slot, position of the row).
  void Run(const std::vector<Group>& groups) {
    plan_.Clear();
    plan_.step = StepId(++steps_);
    plan_.slots = views_;
    for (const Group& group : groups) {
      StepRow row{.slot = SlotId(group.slot), .kind = group.kind, .first = group.first};
      row.count = static_cast<uint16_t>(group.tokens.size());
      row.token_offset = static_cast<uint32_t>(plan_.tokens.size());
      row.sample = group.sample || group.kind == RowKind::kVerify;
      plan_.rows.push_back(row);
      plan_.tokens.insert(plan_.tokens.end(), group.tokens.begin(), group.tokens.end());
    }
    model_->Launch(plan_);
    ASSERT_TRUE(model_->Collect(plan_.step, true, &result_));
    auto accepted = result_.accepted.begin();
    for (size_t g = 0; g < groups.size(); ++g) {
      const StepRow& row = plan_.rows[g];
      if (!row.sample) continue;
      ASSERT_TRUE(accepted != result_.accepted.end() && accepted->slot == row.slot);
      const Position first = row.kind == RowKind::kVerify ? row.first : row.first + row.count - 1;
      const Position right = groups[g].right > 0 ? groups[g].right : row.count;
      const auto kept = std::min<Position>(accepted->count, right);
      for (uint32_t i = 0; i < kept; ++i) Keep(row.slot.value, first + i, *accepted, i);
      ++accepted;
    }
  }

  // Results at positions that were sampled.
  const std::map<Position, RowResult>& results(int slot) const { return results_[slot]; }

  RowMemory MemoryOf(int slot) const {
    RowMemory out;
    const SlotView& view = views_[static_cast<size_t>(slot)];
    for (int part = 0; part < kPartCount; ++part) {
      for (const PageId page : view.pages[part]) {
        const std::byte* at = memory_.Page(static_cast<Part>(part), page);
        out.pages[part].insert(out.pages[part].end(), at, at + memory_.page_bytes[part]);
      }
    }
    if (view.state != kNoPage) {
      const std::byte* at = memory_.State(view.state);
      out.state.assign(at, at + memory_.state_bytes);
    }
    return out;
  }

  // Takes a sequence over from another engine, as a hand-over does.
  void TakeOver(int slot, const RowRig& from, int from_slot) {
    const SlotView& view = views_[static_cast<size_t>(slot)];
    const SlotView& theirs = from.views_[static_cast<size_t>(from_slot)];
    for (int part = 0; part < kPartCount; ++part) {
      for (size_t block = 0; block < view.pages[part].size(); ++block) {
        std::memcpy(memory_.Page(static_cast<Part>(part), view.pages[part][block]),
                    from.memory_.Page(static_cast<Part>(part), theirs.pages[part][block]),
                    memory_.page_bytes[part]);
      }
    }
    if (view.state != kNoPage) {
      std::memcpy(memory_.State(view.state), from.memory_.State(theirs.state), memory_.state_bytes);
    }
    SetTailStart(slot, theirs.tail_start);
  }

 private:
  const CacheLayout& layout() const { return loaded_->info().layout; }

  static std::vector<PageId> Shuffled(PageId count, Random* random) {
    std::vector<PageId> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random->Below(i)]);
    return ids;
  }

  void Keep(int slot, Position position, const Accepted& accepted, uint32_t index) {
    RowResult row;
    row.token = result_.tokens[accepted.token_offset + index];
    const TokenScore& score = result_.scores[static_cast<size_t>(accepted.score_offset) + index];
    const auto bits = [](float value) {
      uint32_t out = 0;
      std::memcpy(&out, &value, sizeof(out));
      return out;
    };
    row.scores.emplace_back(row.token, bits(score.logprob));
    for (const auto& [token, logprob] : score.top) row.scores.emplace_back(token, bits(logprob));
    const auto [at, fresh] = results_[slot].emplace(position, row);
    if (fresh) return;
    EXPECT_EQ(at->second, row) << "slot " << slot << ", position " << position << " came out twice";
  }

  const std::shared_ptr<const LoadedModel> loaded_;
  const uint32_t blocks_;  // of each sequence
  KvMemory memory_;
  std::vector<std::byte> bytes_[kPartCount];
  std::vector<std::byte> state_;
  std::vector<PageId> tables_[kSlots][kPartCount];
  SamplingParams sampling_[kSlots];
  std::vector<SlotView> views_ = std::vector<SlotView>(kSlots);
  std::unique_ptr<Model> model_;
  StepPlan plan_;
  StepResult result_;
  uint64_t steps_ = 0;
  std::map<Position, RowResult> results_[kSlots];
};

}  // namespace weir::engine
