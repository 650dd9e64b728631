// SPDX-License-Identifier: Apache-2.0
//
// Going on behind a reused prefix with the model that has every kind of state: what a plan calls
// enough is enough, and each part that is missing, stale or late changes the next token.
#include <cstring>

#include "base/stdx/check.h"
#include "engine/model/hash_model.h"
#include "engine/model/hash_oracle.h"
#include "gtest/gtest.h"
#include "kvstore/hit/hit_plan.h"

namespace weir::engine {
namespace {

constexpr uint32_t kBlock = 8;
constexpr PageId kPages = 64;
constexpr Position kPrompt = 101;
constexpr Position kDonor = 75;  // ends inside a block

HashConfig Config() {
  HashConfig config;
  config.vocab = 50000;  // so that an accidental hit is no explanation
  config.window = 6;
  config.decoder_tail_rows = 7;
  config.draft_max = 0;
  config.block_tokens = kBlock;
  return config;
}

std::vector<TokenId> Tokens() {
  Random random(3, 9);
  std::vector<TokenId> tokens(kPrompt);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.Below(50000));
  return tokens;
}

// What may be wrong with how a prefix is taken up.
struct Flaw {
  Position fewer_rows = 0;       // of the replay
  bool no_history = false;       // rows before the replay that only leave their ids
  bool no_floor = false;         // replayed rows write blocks
  bool see_before = false;       // windows are not cut at the replay's start
  int stale_block = -1;          // a block of other tokens
  Part stale_part = Part::kEncoder;
  bool other_state = false;      // a state of other tokens
  bool no_state = false;         // none at all, where the plan counts on one
  bool no_tail = false;          // a state without the rows of its incomplete block
  Position tail_start_moved = 0;
};

class HashReuse : public testing::Test {
 protected:
  HashReuse() : loaded_(MakeHashModel(Config())) {
    const CacheLayout& layout = loaded_->info().layout;
    for (int part = 0; part < kPartCount; ++part) {
      memory_.page_bytes[part] = layout.page_bytes(static_cast<Part>(part));
      memory_.page_count[part] = kPages;
      bytes_[part].assign(memory_.page_bytes[part] * kPages, std::byte{0x5a});
      memory_.part_base[part] = bytes_[part].data();
    }
    memory_.state_bytes = layout.state_bytes();
    memory_.state_count = 4;
    bytes_[2].assign(memory_.state_bytes * 4, std::byte{0x3c});
    memory_.state_base = bytes_[2].data();
    model_ = loaded_->Instantiate(memory_);
  }

  // Rows [first, end) of `tokens` in pages `page`, ... and state `state`; the token after the last.
  TokenId Run(const std::vector<TokenId>& tokens, Position first, Position end, PageId page,
              PageId state, Position tail_start, Position floor = 0, Position visible = 0) {
    if (first == end) return -1;
    std::vector<PageId> pages;
    for (PageId i = 0; i < 16; ++i) pages.push_back(page + i);
    SlotView view;
    for (auto& list : view.pages) list = pages;
    view.state = state;
    view.sampling = &sampling_;
    view.prompt_tokens = kPrompt;
    view.tail_start = tail_start;
    StepPlan plan;
    plan.step = StepId(++steps_);
    plan.slots = std::span(&view, 1);
    plan.tokens.assign(tokens.begin() + first, tokens.begin() + end);
    plan.rows.push_back({.slot = SlotId(0),
                         .first = first,
                         .count = static_cast<uint16_t>(end - first),
                         .write_floor = floor,
                         .visible_from = visible,
                         .sample = end == tokens.size()});
    StepResult result;
    model_->Launch(plan);
    WEIR_CHECK(model_->Collect(plan.step, true, &result));
    return result.tokens.empty() ? -1 : result.tokens[0];
  }

  void CopyBlocks(PageId from, PageId to, uint32_t count) {
    for (int part = 0; part < kPartCount; ++part) {
      const auto p = static_cast<Part>(part);
      std::memcpy(memory_.Page(p, to), memory_.Page(p, from), memory_.page_bytes[part] * count);
    }
  }

  // The first token of the answer when the prompt is taken up behind what its donor left.
  TokenId Resume(kv::ReplayMode replay, bool with_state, const Flaw& flaw) {
    const std::vector<TokenId> tokens = Tokens();
    const Position tail = kPrompt - Config().decoder_tail_rows;
    std::vector<TokenId> other = tokens;
    for (Position i = 8; i < 32; ++i) other[i] += 1;
    for (Position i = 66; i < kDonor; ++i) other[i] += 1;  // windows reach no further back
    // Donors: this prompt up to kDonor, and another of the same length.
    const auto donor = [&](const std::vector<TokenId>& of, PageId page, PageId state) {
      Run({of.begin(), of.begin() + kDonor}, 0, kDonor, page, state, kDonor - 7);
    };
    donor(tokens, 0, 0);
    donor(other, 16, 1);

    const std::vector<kv::HitRun> runs = {{.blocks = kDonor / kBlock}};
    const std::vector<Position> states = {kDonor};
    const kv::Geometry geometry{.block_tokens = kBlock,
                                .block_bytes = 1,
                                .window = Config().window,
                                .window_layers = loaded_->info().window_layers,
                                .history = loaded_->info().history,
                                .hit_tokens_min = 2 * kBlock};
    const kv::HitPlan plan = kv::PlanHit(
        {.geometry = geometry,
         .replay = replay,
         .tokens = kPrompt,
         .resume_max = tail,
         .runs = runs,
         .states = with_state ? std::span(states) : std::span<const Position>()});
    window_ = plan.window;
    const PageId page = 32, state = 2;
    std::memset(memory_.State(state), 0x3c, memory_.state_bytes);
    for (int part = 0; part < kPartCount; ++part) {
      std::memset(memory_.Page(static_cast<Part>(part), page), 0x5a, memory_.page_bytes[part] * 16);
    }
    CopyBlocks(0, page, plan.hit / kBlock);
    if (flaw.stale_block >= 0) {
      std::memcpy(memory_.Page(flaw.stale_part, page + flaw.stale_block),
                  memory_.Page(flaw.stale_part, 16 + flaw.stale_block),
                  memory_.page_bytes[static_cast<int>(flaw.stale_part)]);
    }
    if (plan.state >= 0 && !flaw.no_state) {
      std::memcpy(memory_.State(state), memory_.State(flaw.other_state ? 1 : 0),
                  memory_.state_bytes);
      if (!flaw.no_tail) CopyBlocks(static_cast<PageId>(plan.hit / kBlock),
                                    page + static_cast<PageId>(plan.hit / kBlock), 1);
    }
    const Position visible = plan.visible_from + flaw.fewer_rows;
    const Position from = plan.state >= 0 ? plan.compute_from
                          : flaw.no_history ? visible
                                            : plan.compute_from + flaw.fewer_rows;
    const Position floor = flaw.no_floor ? 0 : plan.hit;
    const Position start = tail + flaw.tail_start_moved;
    if (from < visible) Run(tokens, from, visible, page, state, start, floor, from);
    return Run(tokens, std::max(from, visible), kPrompt, page, state, start, floor,
               flaw.see_before ? 0 : visible);
  }

  TokenId Cold() const {
    HashOracle oracle(Config(), Tokens(), kPrompt - Config().decoder_tail_rows, sampling_);
    return oracle.Answer(1)[0];
  }

  const std::shared_ptr<const LoadedModel> loaded_;
  std::unique_ptr<Model> model_;
  KvMemory memory_;
  std::vector<std::byte> bytes_[3];
  const SamplingParams sampling_;
  kv::WindowSource window_ = kv::WindowSource::kNone;
  uint64_t steps_ = 0;
};

TEST_F(HashReuse, AStateAndItsTailAreEnough) {
  const auto resume = [this](const Flaw& flaw) {
    return Resume(kv::ReplayMode::kExact, /*with_state=*/true, flaw);
  };
  EXPECT_EQ(resume({}), Cold());
  EXPECT_EQ(window_, kv::WindowSource::kState);
  EXPECT_NE(resume({.no_state = true}), Cold());
  EXPECT_NE(resume({.other_state = true}), Cold());
  EXPECT_NE(resume({.no_tail = true}), Cold());
  EXPECT_NE(resume({.tail_start_moved = 1}), Cold());
}

TEST_F(HashReuse, AnExactReplayIsEnoughAndNotTooLong) {
  const auto resume = [this](const Flaw& flaw) {
    return Resume(kv::ReplayMode::kExact, /*with_state=*/false, flaw);
  };
  EXPECT_EQ(resume({}), Cold());
  EXPECT_EQ(window_, kv::WindowSource::kExact);
  // The plan keeps W rows of every layer, of which the next row reads W - 1, and begins even.
  EXPECT_NE(resume({.fewer_rows = 3}), Cold());
  EXPECT_NE(resume({.no_floor = true}), Cold()) << "rows that see too little must not be kept";
  EXPECT_NE(resume({.tail_start_moved = 1}), Cold());
}

TEST_F(HashReuse, ABoundedReplayIsTheSameForTheSameHitAndNotExact) {
  const auto resume = [this](const Flaw& flaw) {
    return Resume(kv::ReplayMode::kBounded, /*with_state=*/false, flaw);
  };
  const TokenId bounded = resume({});
  EXPECT_EQ(window_, kv::WindowSource::kBounded);
  EXPECT_NE(bounded, Cold());
  EXPECT_EQ(resume({}), bounded);
  EXPECT_NE(resume({.fewer_rows = 1}), bounded);
  EXPECT_NE(resume({.no_history = true}), bounded);
  EXPECT_NE(resume({.see_before = true}), bounded);
  EXPECT_NE(resume({.no_floor = true}), bounded);
}

TEST_F(HashReuse, EveryBlockOfEitherPartIsRead) {
  for (int block = 1; block < 4; ++block) {
    for (const Part part : {Part::kEncoder, Part::kDecoder}) {
      EXPECT_NE(Resume(kv::ReplayMode::kExact, true, {.stale_block = block, .stale_part = part}),
                Cold());
      EXPECT_NE(Resume(kv::ReplayMode::kExact, false, {.stale_block = block, .stale_part = part}),
                Cold());
    }
  }
}

}  // namespace
}  // namespace weir::engine
