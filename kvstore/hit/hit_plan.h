// SPDX-License-Identifier: Apache-2.0
//
// PlanHit: what of a prompt's prefix to reuse from where, from which position to go on, what to
// compute again for its windows and what to bill. One pure function of router, engine and simulator;
// any thread, no allocation, cannot fail: with nothing to reuse the plan is to compute everything.
//
// Positions of a plan with a replay, in order, compute_from <= visible_from <= resume <= hit:
//   [compute_from, visible_from)  rows that only leave their ids to n-grams
//   [visible_from, resume)        rows that rebuild windows, which end at visible_from; blocks below
//                                 `hit` are read and never written
//   [resume, tokens)              what is computed anyway
// With a saved state its windows reach back below compute_from, so visible_from is 0.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/stdx/ids.h"
#include "kvstore/key/geometry.h"

namespace weir::kv {

// Where a block can be had, cheapest first.
enum class Tier : uint8_t { kDevice = 0, kPeer = 1, kHost = 2, kDisk = 3, kShared = 4 };
inline constexpr int kTierCount = 5;

// Exact: tokens as after a cold run. Bounded: only one window is computed again, and what comes out
// depends on where the hit ended.
enum class ReplayMode : uint8_t { kExact = 0, kBounded = 1 };

enum class WindowSource : uint8_t {
  kNone = 0,     // nothing to restore: no hit, or a model without windows
  kState = 1,    // a saved state at `resume`
  kCatchUp = 2,  // a saved state before it, and the rows in between computed again
  kExact = 3,    // as many rows as every layer's window needs
  kBounded = 4,  // one window of rows
};

// Consecutive blocks that one tier has.
struct HitRun {
  Tier tier = Tier::kDevice;
  bool approximate = false;  // written after a bounded replay
  uint32_t blocks = 0;
};

// Zero: free.
struct TierCost {
  double wait_us = 0;  // behind what is queued there
  double block_us = 0;
};

struct HitInputs {
  Geometry geometry;
  ReplayMode replay = ReplayMode::kExact;
  Position tokens = 0;      // N > 0
  Position resume_max = 0;  // the first row whose result is needed: at most N - 1
  std::span<const HitRun> runs;      // from block 0, without gaps
  std::span<const Position> states;  // where window states of these very tokens are kept
  std::array<TierCost, kTierCount> costs{};
  double token_us = 0;  // of computing one; 0: whatever is there is worth loading
};

struct HitPlan {
  Position hit = 0;  // KV of [0, hit) is reused, whole blocks
  Position resume = 0;
  Position visible_from = 0;  // window rows before it do not exist
  Position compute_from = 0;
  WindowSource window = WindowSource::kNone;
  int32_t state = -1;        // into HitInputs::states
  bool approximate = false;  // so are the blocks computed next
  Position billed = 0;       // tokens the client is told were cached
  std::array<uint32_t, kTierCount> blocks{};  // reused, by where they come from
  uint64_t load_bytes = 0;   // of those that are not on the device

  // Rows to run that a hit with a fresh window state would not need.
  Position replayed() const { return resume - compute_from; }
};

HitPlan PlanHit(const HitInputs& inputs);

}  // namespace weir::kv
