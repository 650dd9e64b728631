// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/run.h"
#include "kernels/ref/access.h"

namespace weir::kernels::cpu {
namespace {

using ref::F32;
using ref::I32;

constexpr int kExpertsMax = 1024;
constexpr int kChoicesMax = 64;
constexpr double kExcluded = -std::numeric_limits<double>::infinity();

double Score(RouteScore kind, double logit) {
  if (kind == RouteScore::kSigmoid) return 1.0 / (1.0 + std::exp(-logit));
  return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))));
}

int Largest(const double* values, int n) {
  return static_cast<int>(std::max_element(values, values + n) - values);
}

// Sets to -inf every expert outside the best `kept` groups, ranked by their two best biased scores.
void LimitGroups(const MoeRouteArgs& args, double* biased) {
  const int width = args.experts / args.groups;
  std::array<double, kExpertsMax> rank;
  for (int g = 0; g < args.groups; ++g) {
    double best = kExcluded;
    double second = kExcluded;
    for (int e = g * width; e < (g + 1) * width; ++e) {
      if (biased[e] > best) {
        second = best;
        best = biased[e];
      } else {
        second = std::max(second, biased[e]);
      }
    }
    rank[g] = width > 1 ? best + second : best;
  }
  std::array<bool, kExpertsMax> kept{};
  for (int i = 0; i < args.groups_kept; ++i) {
    const int g = Largest(rank.data(), args.groups);
    kept[g] = true;
    rank[g] = kExcluded;
  }
  for (int e = 0; e < args.experts; ++e) {
    if (!kept[e / width]) biased[e] = kExcluded;
  }
}

void SelectExperts(const MoeRouteArgs& args, int64_t r, const float* logits) {
  const bool image = !args.image.empty() && I32(args.image)[r] != 0;
  const float* bias = F32(image ? args.image_bias : args.bias);
  std::array<double, kExpertsMax> score;
  std::array<double, kExpertsMax> biased;
  for (int e = 0; e < args.experts; ++e) {
    score[e] = Score(args.score, logits[e]);
    biased[e] = score[e] + bias[e];
  }
  if (args.groups > 1) LimitGroups(args, biased.data());
  int32_t* expert = I32(args.expert) + r * args.choices;
  float* weight = F32(args.weight) + r * args.choices;
  double total = 1e-20;
  for (int k = 0; k < args.choices; ++k) {
    expert[k] = Largest(biased.data(), args.experts);
    biased[expert[k]] = kExcluded;
    total += score[expert[k]];
  }
  const double divisor = args.normalise ? total : 1.0;
  for (int k = 0; k < args.choices; ++k) {
    weight[k] = static_cast<float>(score[expert[k]] / divisor * args.scale);
  }
}

// The slots that have entries, and their tiles as one range.
struct ActiveSlots {
  int count = 0;
  int slot[kExpertsMax];
};

}  // namespace

void RunMoeRoute(const KernelTable& kernels, Team& team, const MoeRouteArgs& args) {
  WEIR_CHECK(args.experts <= kExpertsMax && args.choices <= kChoicesMax);
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
      SelectExperts(args, first + r, logits + r * args.experts);
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
  WEIR_CHECK(args.slots.size() <= kExpertsMax);
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
  WEIR_CHECK(args.choices <= kChoicesMax);
  team.For(args.rows, 2, [&](const Team::Part&, int64_t r) {
    const int32_t* expert = I32(args.expert) + r * args.choices;
    std::array<int, kChoicesMax> order;
    for (int k = 0; k < args.choices; ++k) order[k] = k;
    std::sort(order.begin(), order.begin() + args.choices,
              [&](int a, int b) { return expert[a] < expert[b]; });
    float* sum = F32(args.sum) + r * args.width;
    for (int k = 0; k < args.choices; ++k) {
      const int64_t mine = r * args.choices + order[k];
      const float factor = args.weight.empty() ? 1.0f : F32(args.weight)[mine];
      kernels.axpy(sum, factor, F32(args.out) + mine * args.width, args.width);
    }
  });
}

}  // namespace weir::kernels::cpu
