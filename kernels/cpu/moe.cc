// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/run.h"
#include "kernels/ref/access.h"
#include "kernels/ref/experts.h"

namespace weir::kernels::cpu {
namespace {

using ref::F32;
using ref::I32;

// The slots that have entries, and their tiles as one range.
struct ActiveSlots {
  int count = 0;
  int slot[ref::kExpertsMax];
};

}  // namespace

void RunMoeRoute(const KernelTable& kernels, Team& team, const MoeRouteArgs& args) {
  WEIR_CHECK(args.experts <= ref::kExpertsMax && args.choices <= ref::kChoicesMax);
  const Packed& w = PackedOf(args.gate).whole;
  auto* logits = reinterpret_cast<float*>(team.shared());
  const int64_t rows_max = static_cast<int64_t>(kSharedScratch / sizeof(float)) / args.experts;
  for (int64_t first = 0; first < args.rows; first += rows_max) {
    const int64_t count = std::min<int64_t>(rows_max, args.rows - first);
    const float* x = F32(args.x) + first * w.cols;
    team.For(w.tiles, TileGrain(w, count), [&](const Team::Part& part, int64_t tile) {
      float* out = logits + tile * kTile;
      MultiplyTileRows(
          kernels, part, w, tile, count, WidthOfTile(w.rows, tile),
          [&](int64_t r) { return x + r * w.cols; },
          [&](int64_t r) { return out + r * args.experts; });
    });
    team.For(count, 4, [&](const Team::Part&, int64_t r) {
      std::array<double, ref::kExpertsMax> logit;
      std::copy_n(logits + r * args.experts, args.experts, logit.begin());
      ref::SelectExperts(args, logit.data(), first + r);
    });
  }
}

void RunMoePermute(const KernelTable& kernels, Team& team, const MoePermuteArgs& args) {
  const int32_t* expert = I32(args.expert);
  const int32_t* slot_of = I32(args.slot_of);
  int32_t* begin = I32(args.slot_begin);
  int32_t* entry = I32(args.entry);
  const int entries = args.rows * args.choices;
  std::memset(begin, 0, static_cast<size_t>(args.slots + 1) * sizeof(int32_t));
  for (int e = 0; e < entries; ++e) ++begin[slot_of[expert[e]] + 1];
  for (int slot = 0; slot < args.slots; ++slot) begin[slot + 1] += begin[slot];
  WEIR_CHECK(begin[args.slots] == entries);
  // begin[slot] walks to the slot's end, which is where the next one starts.
  for (int e = 0; e < entries; ++e) entry[begin[slot_of[expert[e]]]++] = e;
  for (int slot = args.slots; slot > 0; --slot) begin[slot] = begin[slot - 1];
  begin[0] = 0;
}

void RunExpertFfn(const KernelTable& kernels, Team& team, const ExpertFfnArgs& args) {
  const int32_t* begin = I32(args.slot_begin);
  const int32_t* entry = I32(args.entry);
  const float* weight = args.weight.empty() ? nullptr : F32(args.weight);
  auto* active = reinterpret_cast<ActiveSlots*>(team.shared());
  WEIR_CHECK(args.slots.size() <= ref::kExpertsMax);
  active->count = 0;
  for (size_t slot = 0; slot < args.slots.size(); ++slot) {
    if (begin[slot + 1] > begin[slot]) active->slot[active->count++] = static_cast<int>(slot);
  }
  if (active->count == 0) return;
  const ExpertWeights& any = args.slots[static_cast<size_t>(active->slot[0])];
  const int64_t mean = std::max<int64_t>(1, begin[args.slots.size()] / active->count);

  const int64_t inner = any.gate.rows;
  const int64_t inner_tiles = PackedOf(any.gate).whole.tiles;
  float* const hidden = F32(args.hidden);
  float* const up_side = hidden + static_cast<int64_t>(args.entries_max) * inner;
  team.For(active->count * inner_tiles, TileGrain(PackedOf(any.gate).whole, 2 * mean),
           [&](const Team::Part& part, int64_t index) {
             const int slot = active->slot[index / inner_tiles];
             const int64_t tile = index % inner_tiles;
             const ExpertWeights& mine = args.slots[static_cast<size_t>(slot)];
             const int64_t first = begin[slot];
             const int64_t count = begin[slot + 1] - first;
             const int wide = WidthOfTile(inner, tile);
             const auto x = [&](int64_t i) {
               return F32(args.x) + int64_t{entry[first + i]} / args.choices * mine.gate.cols;
             };
             float* gate = hidden + first * inner + tile * kTile;
             float* up = up_side + first * inner + tile * kTile;
             MultiplyTileRows(kernels, part, PackedOf(mine.gate).whole, tile, count, wide, x,
                              [&](int64_t i) { return gate + i * inner; });
             MultiplyTileRows(kernels, part, PackedOf(mine.up).whole, tile, count, wide, x,
                              [&](int64_t i) { return up + i * inner; });
             for (int64_t i = 0; i < count; ++i) {
               kernels.swiglu(gate + i * inner, up + i * inner, wide, args.limit,
                              weight == nullptr ? 1.0f : weight[entry[first + i]]);
             }
           });

  const int64_t outer_tiles = PackedOf(any.down).whole.tiles;
  team.For(active->count * outer_tiles, TileGrain(PackedOf(any.down).whole, mean),
           [&](const Team::Part& part, int64_t index) {
             const int slot = active->slot[index / outer_tiles];
             const int64_t tile = index % outer_tiles;
             const Matrix& down = args.slots[static_cast<size_t>(slot)].down;
             const int64_t first = begin[slot];
             MultiplyTileRows(
                 kernels, part, PackedOf(down).whole, tile, begin[slot + 1] - first,
                 WidthOfTile(down.rows, tile),
                 [&](int64_t i) { return hidden + (first + i) * inner; },
                 [&](int64_t i) {
                   return F32(args.out) + int64_t{entry[first + i]} * down.rows + tile * kTile;
                 });
           });
}

void RunMoeCombine(const KernelTable& kernels, Team& team, const MoeCombineArgs& args) {
  WEIR_CHECK(args.choices <= ref::kChoicesMax);
  team.For(args.rows, 2, [&](const Team::Part&, int64_t r) {
    const int32_t* expert = I32(args.expert) + r * args.choices;
    const std::array<int, ref::kChoicesMax> order = ref::InExpertOrder(expert, args.choices);
    float* sum = F32(args.sum) + r * args.width;
    for (int k = 0; k < args.choices; ++k) {
      const int64_t mine = r * args.choices + order[k];
      const float factor = args.weight.empty() ? 1.0f : F32(args.weight)[mine];
      kernels.axpy(sum, factor, F32(args.out) + mine * args.width, args.width);
    }
  });
}

}  // namespace weir::kernels::cpu
