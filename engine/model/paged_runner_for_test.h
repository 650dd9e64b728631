// SPDX-License-Identifier: Apache-2.0
//
// PagedRunner: drives a stand-in model over scattered pages for tests, with any chunking, batching
// and verification the test asks for. One thread; owns the pages. It commits what a step accepted by
// moving cursors, as a core would.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/stdx/check.h"
#include "base/stdx/random.h"
#include "engine/model/model.h"

namespace weir::engine {

class PagedRunner {
 public:
  static constexpr PageId kPages = 512;
  static constexpr PageId kStates = 16;

  struct Sequence {
    std::vector<TokenId> tokens;  // prompt and answer; the last may be uncomputed
    Position computed = 0;
    Position prompt_tokens = 0;
    Position tail_start = 0;
    SamplingParams sampling;
    std::vector<TokenId> answer;
    std::vector<TokenId> drafts;
    std::vector<TokenScore> scores;
    std::vector<PageId> pages[kPartCount];
    PageId state = kNoPage;
  };

  explicit PagedRunner(const LoadedModel& loaded, uint64_t seed = 1)
      : info_(loaded.info()), random_(seed) {
    for (int part = 0; part < kPartCount; ++part) {
      memory_.page_bytes[part] = info_.layout.page_bytes(static_cast<Part>(part));
      memory_.page_count[part] = kPages;
      bytes_[part].resize(memory_.page_bytes[part] * kPages);
      memory_.part_base[part] = bytes_[part].data();
      for (PageId page = 0; page < kPages; ++page) free_[part].push_back(page);
    }
    memory_.state_bytes = info_.layout.state_bytes();
    memory_.state_count = kStates;
    bytes_[2].resize(memory_.state_bytes * kStates);
    memory_.state_base = bytes_[2].data();
    for (auto& bytes : bytes_) {  // old rows of somebody else
      for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
        const uint64_t noise = random_.Next();
        std::memcpy(bytes.data() + i, &noise, 8);
      }
    }
    model_ = loaded.Instantiate(memory_);
  }

  SlotId Add(std::vector<TokenId> prompt, Position tail_start, SamplingParams sampling) {
    Sequence& s = *sequences_.emplace_back(std::make_unique<Sequence>());
    s.prompt_tokens = static_cast<Position>(prompt.size());
    s.tokens = std::move(prompt);
    s.tail_start = tail_start;
    s.sampling = std::move(sampling);
    s.state = static_cast<PageId>(kStates - static_cast<PageId>(sequences_.size()));
    return SlotId(static_cast<int32_t>(sequences_.size()) - 1);
  }
  Sequence& At(SlotId slot) { return *sequences_[static_cast<size_t>(slot.value)]; }
  KvMemory& memory() { return memory_; }

  // Adds `count` rows of the prompt, sampling after the last of it.
  void PlanPrefill(SlotId slot, uint32_t count) {
    Sequence& s = At(slot);
    const auto left = static_cast<uint32_t>(s.tokens.size()) - s.computed - Planned(slot);
    count = std::min(count, left);
    if (count == 0) return;
    StepRow row{.slot = slot, .kind = RowKind::kPrefill, .first = s.computed + Planned(slot)};
    row.sample = count == left;
    Push(s, row, {s.tokens.begin() + row.first, s.tokens.begin() + row.first + count});
  }

  // Adds the accepted token and up to `drafts` of the proposals.
  void PlanVerify(SlotId slot, uint32_t drafts) {
    Sequence& s = At(slot);
    StepRow row{.slot = slot, .kind = RowKind::kVerify, .first = s.computed};
    std::vector<TokenId> inputs = {s.tokens.back()};
    drafts = std::min<uint32_t>(drafts, static_cast<uint32_t>(s.drafts.size()));
    inputs.insert(inputs.end(), s.drafts.begin(), s.drafts.begin() + drafts);
    Push(s, row, inputs);
  }

  void Run() {
    views_.clear();
    for (const auto& s : sequences_) {
      SlotView view;
      for (int part = 0; part < kPartCount; ++part) view.pages[part] = s->pages[part];
      view.state = s->state;
      view.sampling = &s->sampling;
      view.emitted = s->answer;
      view.prompt_tokens = s->prompt_tokens;
      view.tail_start = s->tail_start;
      views_.push_back(view);
    }
    plan_.step = StepId(++steps_);
    plan_.slots = views_;
    model_->Launch(plan_);
    WEIR_CHECK(model_->Collect(plan_.step, true, &result_));
    for (const StepRow& row : plan_.rows) {
      if (row.kind == RowKind::kPrefill) At(row.slot).computed = row.first + row.count;
    }
    for (const Accepted& accepted : result_.accepted) Commit(accepted);
    plan_.Clear();
  }

  // Alone and plainly: whole prompt at once, then `drafts` drafts per step, `count` tokens in all.
  void Generate(SlotId slot, uint32_t count, uint32_t drafts) {
    while (At(slot).computed < At(slot).prompt_tokens) {
      PlanPrefill(slot, 1000);
      Run();
    }
    while (At(slot).answer.size() < count) {
      PlanVerify(slot, drafts);
      Run();
    }
  }

 private:
  uint32_t Planned(SlotId slot) const {
    uint32_t rows = 0;
    for (const StepRow& row : plan_.rows) rows += row.slot == slot ? row.count : 0;
    return rows;
  }

  void Push(Sequence& s, StepRow row, const std::vector<TokenId>& inputs) {
    row.count = static_cast<uint16_t>(inputs.size());
    row.token_offset = static_cast<uint32_t>(plan_.tokens.size());
    plan_.tokens.insert(plan_.tokens.end(), inputs.begin(), inputs.end());
    plan_.rows.push_back(row);
    const uint32_t blocks = info_.layout.BlocksFor(row.first + row.count);
    for (int part = 0; part < kPartCount; ++part) {
      while (info_.layout.has(static_cast<Part>(part)) && s.pages[part].size() < blocks) {
        const size_t pick = random_.Below(free_[part].size());
        s.pages[part].push_back(free_[part][pick]);
        free_[part].erase(free_[part].begin() + static_cast<long>(pick));
      }
    }
  }

  void Commit(const Accepted& accepted) {
    Sequence& s = At(accepted.slot);
    if (s.computed >= s.prompt_tokens && s.tokens.size() > s.computed) s.computed += accepted.count;
    for (uint32_t i = 0; i < accepted.count; ++i) {
      const TokenId token = result_.tokens[accepted.token_offset + i];
      s.tokens.push_back(token);
      s.answer.push_back(token);
      if (accepted.score_offset >= 0) {
        s.scores.push_back(result_.scores[static_cast<size_t>(accepted.score_offset) + i]);
      }
    }
    s.drafts.assign(result_.drafts.begin() + accepted.draft_offset,
                    result_.drafts.begin() + accepted.draft_offset + accepted.draft_count);
  }

  const ModelInfo& info_;
  Random random_;
  KvMemory memory_;
  std::vector<std::byte> bytes_[3];
  std::vector<PageId> free_[kPartCount];
  std::unique_ptr<Model> model_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<SlotView> views_;
  StepPlan plan_;
  StepResult result_;
  uint64_t steps_ = 0;
};

}  // namespace weir::engine
