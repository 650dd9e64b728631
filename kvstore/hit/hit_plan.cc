// SPDX-License-Identifier: Apache-2.0
#include "kvstore/hit/hit_plan.h"

#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/units.h"

namespace weir::kv {
namespace {

// A fetch must clearly beat computing, whose estimate is the better one.
constexpr double kWorthIt = 0.8;

// Blocks from the first that this request may use at all.
uint32_t UsableBlocks(const HitInputs& in) {
  uint32_t blocks = 0;
  for (const HitRun& run : in.runs) {
    if (run.approximate && in.replay == ReplayMode::kExact) break;
    blocks += run.blocks;
  }
  // At least one token is computed: somebody has to say what comes next.
  return std::min(blocks, (in.tokens - 1) / in.geometry.block_tokens);
}

// Cuts the prefix before the first block of a tier that is slower than computing what it has.
uint32_t BlocksWorthLoading(const HitInputs& in, uint32_t usable) {
  if (in.token_us <= 0) return usable;
  std::array<uint32_t, kTierCount> have{};
  std::array<uint32_t, kTierCount> first{};
  uint32_t at = 0;
  for (const HitRun& run : in.runs) {
    const uint32_t take = std::min(run.blocks, usable - at);
    const auto tier = static_cast<size_t>(run.tier);
    if (have[tier] == 0) first[tier] = at;
    have[tier] += take;
    at += take;
  }
  uint32_t worth = usable;
  for (size_t tier = 1; tier < kTierCount; ++tier) {
    if (have[tier] == 0) continue;
    const double load = in.costs[tier].wait_us + have[tier] * in.costs[tier].block_us;
    const double compute = in.token_us * have[tier] * in.geometry.block_tokens;
    if (load >= kWorthIt * compute) worth = std::min(worth, first[tier]);
  }
  return worth;
}

void TakeBlocks(const HitInputs& in, uint32_t blocks, HitPlan* plan) {
  plan->hit = blocks * in.geometry.block_tokens;
  for (const HitRun& run : in.runs) {
    const uint32_t take = std::min(run.blocks, blocks);
    plan->blocks[static_cast<size_t>(run.tier)] += take;
    if (run.tier != Tier::kDevice) plan->load_bytes += take * in.geometry.block_bytes;
    if (take > 0 && run.approximate) plan->approximate = true;
    blocks -= take;
  }
}

// The latest state from which the rest is computed; -1 for none.
int32_t LatestState(const HitInputs& in, Position hit) {
  int32_t best = -1;
  for (size_t i = 0; i < in.states.size(); ++i) {
    const Position at = in.states[i];
    // Behind the blocks a state brings the rows of its own incomplete block, no more.
    if (at == 0 || at > in.resume_max || at >= hit + in.geometry.block_tokens) continue;
    if (best < 0 || at > in.states[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  return best;
}

void PlanReplay(const HitInputs& in, Position resume, HitPlan* plan) {
  const bool bounded = in.replay == ReplayMode::kBounded;
  const Position rows = bounded ? in.geometry.window : in.geometry.ExactReplay();
  plan->resume = resume;
  plan->visible_from = Geometry::EvenBelow(resume - std::min(resume, rows));
  plan->compute_from = plan->visible_from - std::min(plan->visible_from, in.geometry.history);
  plan->window = bounded && plan->visible_from > 0 ? WindowSource::kBounded : WindowSource::kExact;
  plan->approximate |= plan->window == WindowSource::kBounded;
}

void PlanWindow(const HitInputs& in, HitPlan* plan) {
  const Position resume = Geometry::EvenBelow(std::min(plan->hit, in.resume_max));
  const int32_t state = LatestState(in, plan->hit);
  const Position at = state < 0 ? 0 : in.states[static_cast<size_t>(state)];
  const Position replay =
      in.replay == ReplayMode::kExact ? in.geometry.ExactReplay() + in.geometry.history
                                      : in.geometry.catch_up;
  const bool near = at >= resume || resume - at <= std::min(in.geometry.catch_up, replay);
  if (state < 0 || !near) return PlanReplay(in, resume, plan);
  plan->state = state;
  plan->window = at >= resume ? WindowSource::kState : WindowSource::kCatchUp;
  plan->resume = std::max(at, resume);
  plan->compute_from = at;
}

}  // namespace

HitPlan PlanHit(const HitInputs& in) {
  WEIR_CHECK(in.tokens > 0 && in.resume_max < in.tokens);
  HitPlan plan;
  const uint32_t usable = UsableBlocks(in);
  const Position found = usable * in.geometry.block_tokens;
  if (found < in.geometry.hit_tokens_min) return plan;
  plan.billed = found;
  const uint32_t blocks = BlocksWorthLoading(in, usable);
  if (blocks == 0 || blocks * in.geometry.block_tokens < in.geometry.hit_tokens_min) return plan;
  TakeBlocks(in, blocks, &plan);
  if (in.geometry.plain()) {
    plan.resume = plan.compute_from = std::min(plan.hit, in.resume_max);
  } else {
    PlanWindow(in, &plan);
  }
  return plan;
}

}  // namespace weir::kv
