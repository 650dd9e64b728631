// SPDX-License-Identifier: Apache-2.0
#include "kvstore/hit/hit_plan.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weir::kv {
namespace {

// V4.1-Flash; K = W.
const Geometry kV41{
    .block_tokens = 128, .block_bytes = 113920, .window = 128, .window_layers = 20, .history = 3};
const Geometry kV3{.block_tokens = 64, .block_bytes = 1 << 20};
constexpr Position kTail = 128;

struct Case {
  Geometry geometry = kV41;
  ReplayMode replay = ReplayMode::kExact;
  Position tokens = 0;
  std::vector<HitRun> runs;
  std::vector<Position> states = {};
};

HitInputs InputsOf(const Case& c) {
  const Position tail = c.geometry.plain() ? 1 : std::min(kTail, c.tokens);
  return {.geometry = c.geometry,
          .replay = c.replay,
          .tokens = c.tokens,
          .resume_max = c.tokens - tail,
          .runs = c.runs,
          .states = c.states};
}
HitPlan Plan(const Case& c) { return PlanHit(InputsOf(c)); }

std::vector<HitRun> Device(uint32_t blocks) { return {{.blocks = blocks}}; }

TEST(PlanHit, ReusesNothingBelowTheLeastHit) {
  for (const Position tokens : {1u, 128u, 256u}) {  // of 256 one must be computed
    const HitPlan plan = Plan({.tokens = tokens, .runs = Device(9)});
    EXPECT_EQ(plan.hit, 0u);
    EXPECT_EQ(plan.billed, 0u);
    EXPECT_EQ(plan.resume, 0u);
    EXPECT_EQ(plan.window, WindowSource::kNone);
  }
  EXPECT_EQ(Plan({.tokens = 257, .runs = Device(9)}).billed, 256u);
  EXPECT_EQ(Plan({.tokens = 4000, .runs = Device(1)}).billed, 0u);
  EXPECT_EQ(Plan({.tokens = 4000, .runs = {}}).billed, 0u);
}

// What the client is told, for a common prefix of every length (issue: line 2).
TEST(PlanHit, BillsWholeBlocksOfTheCommonPrefixWhateverIsReplayed) {
  for (const ReplayMode replay : {ReplayMode::kExact, ReplayMode::kBounded}) {
    for (const Geometry& geometry : {kV41, kV3}) {
      const uint32_t block = geometry.block_tokens;
      for (Position tokens = 1; tokens < 700; tokens += 13) {
        for (Position common = 0; common <= tokens; ++common) {
          const HitPlan plan = Plan({.geometry = geometry,
                                     .replay = replay,
                                     .tokens = tokens,
                                     .runs = Device(common / block)});
          const Position whole = std::min(common, tokens - 1) / block * block;
          ASSERT_EQ(plan.billed, whole < 256 ? 0 : whole) << tokens << " " << common;
        }
      }
    }
  }
}

TEST(PlanHit, GoesOnAtTheHitWithoutWindows) {
  const HitPlan plan = Plan({.geometry = kV3, .tokens = 513, .runs = Device(8)});
  EXPECT_EQ(plan.hit, 512u);
  EXPECT_EQ(plan.resume, 512u);
  EXPECT_EQ(plan.compute_from, 512u);
  EXPECT_EQ(plan.replayed(), 0u);
  EXPECT_FALSE(plan.approximate);
}

// N - H' around the two edges: one token to compute, and the decoder's tail.
TEST(PlanHit, GoesOnAtAStateUnlessTheTailBeginsBeforeIt) {
  struct Golden {
    Position behind;  // N - H'
    WindowSource window;
    Position resume, compute_from;
  };
  const Position at = 4096;
  // A state behind the tail's start is of no use: exact replay up to there, 2541 rows and 3 of
  // history, from an even position.
  for (const Golden& golden : std::vector<Golden>{
           {1, WindowSource::kExact, 3968, 1423},    // N - K = 3969, even 3968; 1427 is odd
           {127, WindowSource::kExact, 4094, 1549},  // K - 1
           {128, WindowSource::kState, 4096, 4096},  // K
           {129, WindowSource::kState, 4096, 4096},  // K + 1
       }) {
    const Position tokens = at + golden.behind;
    const HitPlan plan = Plan({.tokens = tokens, .runs = Device(32), .states = {at}});
    EXPECT_EQ(plan.window, golden.window) << golden.behind;
    EXPECT_EQ(plan.resume, golden.resume) << golden.behind;
    EXPECT_EQ(plan.compute_from, golden.compute_from) << golden.behind;
    EXPECT_EQ(plan.hit, 4096u);
    EXPECT_EQ(plan.billed, 4096u);
    EXPECT_FALSE(plan.approximate);
  }
}

TEST(PlanHit, PrefersTheLatestStateThatItsBlocksReach) {
  // A state inside the block behind the hit brings that block's rows itself.
  HitPlan plan = Plan({.tokens = 2000, .runs = Device(4), .states = {300, 575, 512, 100}});
  EXPECT_EQ(plan.window, WindowSource::kState);
  EXPECT_EQ(plan.state, 1);
  EXPECT_EQ(plan.resume, 575u);
  EXPECT_EQ(plan.visible_from, 0u);
  // One block further its blocks are missing.
  plan = Plan({.tokens = 2000, .runs = Device(4), .states = {640, 300}});
  EXPECT_EQ(plan.window, WindowSource::kCatchUp);
  EXPECT_EQ(plan.state, 1);
  EXPECT_EQ(plan.compute_from, 300u);
  EXPECT_EQ(plan.resume, 512u);
  EXPECT_EQ(plan.visible_from, 0u);
  EXPECT_FALSE(plan.approximate);
}

TEST(PlanHit, CatchesUpOverAShortGapAlone) {
  for (const ReplayMode replay : {ReplayMode::kExact, ReplayMode::kBounded}) {
    const auto with_state = [&](Position state) {
      return Plan({.replay = replay, .tokens = 6000, .runs = Device(32), .states = {state}});
    };
    EXPECT_EQ(with_state(4096 - 512).window, WindowSource::kCatchUp);
    EXPECT_EQ(with_state(4096 - 513).window, replay == ReplayMode::kExact
                                                 ? WindowSource::kExact
                                                 : WindowSource::kBounded);
  }
  // Where a replay is shorter than the gap, it is the better way.
  Geometry shallow = kV41;
  shallow.window = 16;
  shallow.window_layers = 2;
  const HitPlan plan = Plan(
      {.geometry = shallow, .tokens = 6000, .runs = Device(32), .states = {4096 - 40}});
  EXPECT_EQ(plan.window, WindowSource::kExact);
  EXPECT_EQ(plan.visible_from, 4064u);  // 31 rows, from an even position
}

TEST(PlanHit, ABoundedReplayIsOneWindowAndTaintsWhatFollows) {
  const HitPlan plan =
      Plan({.replay = ReplayMode::kBounded, .tokens = 6000, .runs = Device(32)});
  EXPECT_EQ(plan.window, WindowSource::kBounded);
  EXPECT_EQ(plan.resume, 4096u);
  EXPECT_EQ(plan.visible_from, 4096u - 128);
  EXPECT_EQ(plan.compute_from, 4096u - 128 - 3);
  EXPECT_TRUE(plan.approximate);
  EXPECT_EQ(plan.billed, 4096u);
  // The tail begins inside the hit.
  const HitPlan tail =
      Plan({.replay = ReplayMode::kBounded, .tokens = 4101, .runs = Device(32)});
  EXPECT_EQ(tail.hit, 4096u);
  EXPECT_EQ(tail.resume, 3972u);
  EXPECT_EQ(tail.visible_from, 3844u);
  EXPECT_EQ(tail.billed, 4096u);
}

TEST(PlanHit, AnApproximateBlockNeverServesAnExactRequest) {
  const std::vector<HitRun> runs = {{.blocks = 3},
                                    {.tier = Tier::kHost, .approximate = true, .blocks = 4},
                                    {.blocks = 2}};
  const HitPlan exact = Plan({.tokens = 4000, .runs = runs});
  EXPECT_EQ(exact.hit, 384u);
  EXPECT_EQ(exact.billed, 384u);
  EXPECT_FALSE(exact.approximate);
  const HitPlan bounded =
      Plan({.replay = ReplayMode::kBounded, .tokens = 4000, .runs = runs, .states = {1152}});
  EXPECT_EQ(bounded.hit, 1152u);
  EXPECT_EQ(bounded.window, WindowSource::kState);
  EXPECT_TRUE(bounded.approximate);  // of the blocks it builds on
}

TEST(PlanHit, TakesAnyMixOfTiers) {
  for (int first = 0; first < kTierCount; ++first) {
    for (int second = 0; second < kTierCount; ++second) {
      const std::vector<HitRun> runs = {{.tier = static_cast<Tier>(first), .blocks = 5},
                                        {.tier = static_cast<Tier>(second), .blocks = 7}};
      const HitPlan plan = Plan({.tokens = 10 * 128 + 1, .runs = runs});
      EXPECT_EQ(plan.hit, 1280u);
      std::array<uint32_t, kTierCount> blocks{};
      blocks[static_cast<size_t>(first)] += 5;
      blocks[static_cast<size_t>(second)] += 5;
      EXPECT_EQ(plan.blocks, blocks);
      const uint32_t loaded = (first > 0 ? 5 : 0) + (second > 0 ? 5 : 0);
      EXPECT_EQ(plan.load_bytes, loaded * uint64_t{113920});
    }
  }
}

TEST(PlanHit, LeavesATierAloneThatIsSlowerThanComputing) {
  HitInputs in = InputsOf({.tokens = 3000, .runs = {}});
  const std::vector<HitRun> runs = {
      {.blocks = 4}, {.tier = Tier::kDisk, .blocks = 10}, {.tier = Tier::kHost, .blocks = 2}};
  in.runs = runs;
  in.token_us = 25;
  in.costs[static_cast<size_t>(Tier::kDisk)] = {.wait_us = 0, .block_us = 100};
  EXPECT_EQ(PlanHit(in).hit, 2048u);
  in.costs[static_cast<size_t>(Tier::kDisk)].wait_us = 24'600;  // 25.6 ms against 0.8 x 32 ms
  const HitPlan plan = PlanHit(in);
  EXPECT_EQ(plan.hit, 512u);
  EXPECT_EQ(plan.billed, 2048u);  // our decision, not the user's cost
  EXPECT_EQ(plan.load_bytes, 0u);
}

// Which rows of a stack of window layers are exact when computing begins somewhere: a row is, where
// all rows of its layer's window below are.
bool ReplayIsExact(Position layers, Position window, Position replayed) {
  const Position resume = 4 * layers * window;
  std::vector<bool> exact(resume, true);  // inputs of the layer
  for (Position layer = 0; layer < layers; ++layer) {
    // Keys of this layer stand where it was run on exact inputs.
    std::vector<bool> next(resume, false);
    for (Position p = resume - replayed; p < resume; ++p) {
      next[p] = true;
      for (Position j = p - std::min(p, window - 1); j <= p; ++j) {
        next[p] = next[p] && j >= resume - replayed && exact[j];
      }
    }
    for (Position p = resume - window; layer + 1 == layers && p < resume; ++p) {
      if (p < resume - replayed || !exact[p]) return false;
    }
    exact = next;
  }
  return true;
}

TEST(Geometry, ReplayIsAsLongAsExactnessNeedsAndNoLonger) {
  for (const auto& [layers, window] :
       std::vector<std::pair<uint32_t, uint32_t>>{{3, 4}, {5, 4}, {8, 8}, {2, 16}}) {
    const Geometry geometry{.block_bytes = 1, .window = window, .window_layers = layers};
    EXPECT_TRUE(ReplayIsExact(layers, window, geometry.ExactReplay()));
    EXPECT_FALSE(ReplayIsExact(layers, window, geometry.ExactReplay() - 1));
  }
}

// Every plan of a small world obeys the order of its positions and needs what it has.
TEST(PlanHit, HoldsItsInvariantsForEveryForkAndState) {
  const Geometry geometry{.block_tokens = 4,
                          .block_bytes = 1,
                          .window = 4,
                          .window_layers = 2,
                          .history = 2,
                          .hit_tokens_min = 8,
                          .catch_up = 6};
  for (const ReplayMode replay : {ReplayMode::kExact, ReplayMode::kBounded}) {
    for (Position tokens = 1; tokens < 40; ++tokens) {
      for (Position resume_max = 0; resume_max < tokens; ++resume_max) {
        for (uint32_t blocks = 0; blocks < 12; ++blocks) {
          for (Position state = 0; state < 44; ++state) {
            const std::vector<HitRun> runs = Device(blocks);
            const HitPlan p = PlanHit({.geometry = geometry,
                                       .replay = replay,
                                       .tokens = tokens,
                                       .resume_max = resume_max,
                                       .runs = runs,
                                       .states = std::span(&state, 1)});
            ASSERT_LE(p.compute_from, p.resume);
            ASSERT_LE(p.visible_from, p.resume);
            ASSERT_LE(p.resume, resume_max);
            ASSERT_LT(p.hit, tokens);
            ASSERT_LE(p.hit, blocks * 4);
            ASSERT_TRUE(p.hit == 0 || p.hit >= 8);
            if (p.state >= 0) {
              ASSERT_EQ(p.compute_from, state);
              ASSERT_LT(state, p.hit + 4);
              ASSERT_LE(p.replayed(), 6u);
            } else {
              ASSERT_LE(p.compute_from, p.visible_from);
              ASSERT_LE(p.resume, p.hit);
              ASSERT_EQ(p.resume % 2, 0u);
              ASSERT_EQ(p.visible_from % 2, 0u);
            }
            ASSERT_EQ(p.approximate, p.window == WindowSource::kBounded);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weir::kv
