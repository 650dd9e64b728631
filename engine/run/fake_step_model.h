// SPDX-License-Identifier: Apache-2.0
//
// For tests of the cores: KV as plain tokens, and a model whose next token is a hash of every token
// it finds in its pages and of a rolling state in its state page. A missing, stale or misplaced page
// or state changes the answer, so an answer equal to FakeAnswer proves the hand-over right. Used by
// one thread; tokens and contexts are small.
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/stdx/check.h"
#include "base/stdx/random.h"
#include "engine/model/model.h"
#include "engine/sched/step_plan.h"

namespace weir::engine {

inline constexpr uint32_t kFakeVocab = 1000;
inline constexpr uint32_t kFakeBlock = 4;
inline constexpr uint32_t kFakeDrafts = 2;

struct FakeKv {
  // Longer than any step of the tests, so that a void step overwrites nothing its repetition needs.
  static constexpr uint32_t kRing = 64;
  struct State {
    std::array<std::pair<Position, uint64_t>, kRing> ring{};  // rolling hash before a position
  };
  using Page = std::array<TokenId, kFakeBlock>;

  explicit FakeKv(PageId page_count, PageId state_count)
      : pages{std::vector<Page>(static_cast<size_t>(page_count)),
              std::vector<Page>(static_cast<size_t>(page_count))},
        states(static_cast<size_t>(state_count)) {}

  std::vector<Page> pages[kPartCount];
  std::vector<State> states;
};

inline ModelInfo FakeModelInfo() {
  ModelInfo info;
  info.vocab = kFakeVocab;
  info.positions_max = 4096;
  info.draft_max = kFakeDrafts;
  // The rolling state depends on every token before it: a replay begins at 0.
  info.window = info.positions_max;
  info.window_layers = 1;
  info.layout = CacheLayout(
      kFakeBlock, {{.name = "enc", .part = Part::kEncoder, .row_bytes = 4},
                   {.name = "dec", .part = Part::kDecoder, .row_bytes = 4},
                   {.name = "carry", .kind = StoreKind::kCarry, .row_bytes = 8, .rows = 64}});
  return info;
}

inline KvMemory FakeMemory(PageId pages, PageId states) {
  KvMemory memory;
  memory.page_count[0] = memory.page_count[1] = pages;
  memory.state_count = states;
  return memory;
}

inline TokenId FakeToken(uint64_t encoder, uint64_t decoder, uint64_t rolling) {
  return static_cast<TokenId>(MixInto(MixInto(encoder, decoder), rolling) % kFakeVocab);
}

// The token after `tokens` when nothing went wrong.
inline TokenId FakeNext(std::span<const TokenId> tokens) {
  uint64_t hash = 1, rolling = 7;
  for (const TokenId token : tokens) {
    hash = MixInto(hash, static_cast<uint64_t>(token));
    rolling = MixInto(rolling, static_cast<uint64_t>(token));
  }
  return FakeToken(hash, hash, rolling);
}

inline std::vector<TokenId> FakeAnswer(std::vector<TokenId> tokens, size_t count) {
  std::vector<TokenId> answer;
  while (answer.size() < count) {
    answer.push_back(FakeNext(tokens));
    tokens.push_back(answer.back());
  }
  return answer;
}

class FakeStepModel {
 public:
  explicit FakeStepModel(FakeKv* kv) : kv_(kv) {}

  StepResult Run(const StepPlan& plan) {
    StepResult result;
    result.step = plan.step;
    for (const PageCopy& copy : plan.copies) {
      const auto from = static_cast<size_t>(copy.from), to = static_cast<size_t>(copy.to);
      if (copy.kind == PageCopy::Kind::kState) {
        kv_->states[to] = kv_->states[from];
      } else {
        auto& pages = kv_->pages[static_cast<int>(copy.part)];
        pages[to] = pages[from];
      }
    }
    for (const StepRow& row : plan.rows) {
      const SlotView& view = plan.slots[static_cast<size_t>(row.slot.value)];
      Accepted accepted{.slot = row.slot,
                        .token_offset = static_cast<uint32_t>(result.tokens.size())};
      for (uint32_t i = 0; i < row.count; ++i) {
        Write(view, row.first + i, plan.tokens[row.token_offset + i], row.write_floor);
        if (row.kind != RowKind::kVerify && !(row.sample && i + 1 == row.count)) continue;
        const TokenId token = Sample(view, row.first + i);
        result.tokens.push_back(token);
        ++accepted.count;
        if (i + 1 < row.count && plan.tokens[row.token_offset + i + 1] != token) break;
      }
      if (!row.sample) continue;
      AddDrafts(view, row.first + (row.kind == RowKind::kVerify ? accepted.count : row.count),
                result.tokens.back(), &accepted, &result);
      result.accepted.push_back(accepted);
    }
    return result;
  }

 private:
  void Write(const SlotView& view, Position position, TokenId token, Position write_floor) {
    for (int part = 0; part < kPartCount && position >= write_floor; ++part) {
      WEIR_CHECK(position / kFakeBlock < view.pages[part].size());
      PageOf(view, part, position)[position % kFakeBlock] = token;
    }
    auto& ring = kv_->states[static_cast<size_t>(view.state)].ring;
    const auto [at, hash] = ring[position % FakeKv::kRing];
    const uint64_t before = position == 0 ? 7 : at == position ? hash : 0xdead;
    ring[(position + 1) % FakeKv::kRing] = {position + 1,
                                            MixInto(before, static_cast<uint64_t>(token))};
  }

  FakeKv::Page& PageOf(const SlotView& view, int part, Position position) {
    return kv_->pages[part][static_cast<size_t>(view.pages[part][position / kFakeBlock])];
  }

  TokenId Sample(const SlotView& view, Position last) {
    uint64_t hash[kPartCount] = {1, 1};
    for (Position p = 0; p <= last; ++p) {
      for (int part = 0; part < kPartCount; ++part) {
        hash[part] = MixInto(hash[part], static_cast<uint64_t>(
                                             PageOf(view, part, p)[p % kFakeBlock]));
      }
    }
    const auto [at, rolling] =
        kv_->states[static_cast<size_t>(view.state)].ring[(last + 1) % FakeKv::kRing];
    return FakeToken(hash[0], hash[1], at == last + 1 ? rolling : 0xdead);
  }

  // Proposals for the positions after `token`, which lies at `position`: the first is right, the
  // second right every other time.
  void AddDrafts(const SlotView& view, Position position, TokenId token, Accepted* accepted,
                 StepResult* result) {
    std::vector<TokenId> tokens;
    for (Position p = 0; p < position; ++p) {
      tokens.push_back(PageOf(view, 0, p)[p % kFakeBlock]);
    }
    tokens.push_back(token);
    accepted->draft_offset = static_cast<uint32_t>(result->drafts.size());
    accepted->draft_count = kFakeDrafts;
    for (uint32_t i = 0; i < kFakeDrafts; ++i) {
      const TokenId next = FakeNext(tokens);
      const bool wrong = i > 0 && position % 2 == 1;
      result->drafts.push_back(wrong ? (next + 1) % static_cast<TokenId>(kFakeVocab) : next);
      tokens.push_back(next);
    }
  }

  FakeKv* const kv_;
};

}  // namespace weir::engine
