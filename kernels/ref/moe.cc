// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/gated.h"
#include "kernels/ref/matrix.h"
#include "kernels/ref/project.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {
namespace {

constexpr int kExpertsMax = 1024;
constexpr int kChoicesMax = 64;
constexpr double kExcluded = -std::numeric_limits<double>::infinity();

// Index of the largest of n values, the lowest one among equals.
int Largest(const double* values, int n) {
  return static_cast<int>(std::max_element(values, values + n) - values);
}

// Sets to -inf every expert outside the best `kept` groups. A group's rank is the sum of its two
// best biased scores. Excluded scores are -inf and not 0: a bias may be negative.
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

double ScoreOf(RouteScore kind, double logit) {
  if (kind == RouteScore::kSigmoid) return 1.0 / (1.0 + std::exp(-logit));
  // ln(1 + e^x) without overflow, to full precision for very negative x too.
  return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::fabs(logit))));
}

void RouteRow(const MoeRouteArgs& args, const double* logit, int64_t r) {
  const bool image = !args.image.empty() && I32(args.image)[r] != 0;
  const float* bias = F32(image ? args.image_bias : args.bias);
  std::array<double, kExpertsMax> score;
  std::array<double, kExpertsMax> biased;
  for (int e = 0; e < args.experts; ++e) {
    score[e] = ScoreOf(args.score, logit[e]);
    biased[e] = score[e] + bias[e];
  }
  if (args.groups > 1) LimitGroups(args, biased.data());
  int32_t* expert = I32(args.expert) + r * args.choices;
  float* weight = F32(args.weight) + r * args.choices;
  double total = 0;
  for (int k = 0; k < args.choices; ++k) {
    expert[k] = Largest(biased.data(), args.experts);
    biased[expert[k]] = kExcluded;
    total += score[expert[k]];
  }
  const double divisor = args.normalise ? total + 1e-20 : 1.0;
  for (int k = 0; k < args.choices; ++k) {
    weight[k] = static_cast<float>(score[expert[k]] / divisor * args.scale);
  }
}

}  // namespace

void RefOps::MoeRoute(Stream& stream, const MoeRouteArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.experts <= kExpertsMax && args.choices <= kChoicesMax);
  std::array<double, kExpertsMax> logit;
  for (int64_t r = 0; r < args.rows; ++r) {
    Multiply(
        args.gate, 1, [&](int) { return F32(args.x) + r * args.gate.cols; },
        [&](int) { return logit.data(); });
    RouteRow(args, logit.data(), r);
  }
}

void RefOps::MoePermute(Stream& stream, const MoePermuteArgs& args) const {
  const KernelScope scope(stream);
  const int32_t* expert = I32(args.expert);
  const int32_t* slot_of = I32(args.slot_of);
  int32_t* begin = I32(args.slot_begin);
  int32_t* entry = I32(args.entry);
  const int entries = args.rows * args.choices;
  int32_t next = 0;
  for (int slot = 0; slot < args.slots; ++slot) {
    begin[slot] = next;
    for (int e = 0; e < entries; ++e) {
      if (slot_of[expert[e]] == slot) entry[next++] = e;
    }
  }
  begin[args.slots] = next;
  WEIR_CHECK(next == entries);
}

void RefOps::ExpertFfn(Stream& stream, const ExpertFfnArgs& args) const {
  const KernelScope scope(stream);
  const int32_t* begin = I32(args.slot_begin);
  const int32_t* entry = I32(args.entry);
  for (size_t slot = 0; slot < args.slots.size(); ++slot) {
    const int count = begin[slot + 1] - begin[slot];
    if (count == 0) continue;
    const ExpertWeights& w = args.slots[slot];
    const int32_t* mine = entry + begin[slot];
    const int64_t wide = w.gate.rows;
    float* gate = F32(args.hidden) + begin[slot] * wide;
    float* up = F32(args.hidden) + (args.entries_max + begin[slot]) * wide;
    const auto in = [&](int i) { return F32(args.x) + mine[i] / args.choices * w.gate.cols; };
    Project(w.gate, count, round_, in, [&](int i) { return gate + i * wide; });
    Project(w.up, count, round_, in, [&](int i) { return up + i * wide; });
    for (int64_t i = 0; i < count * wide; ++i) {
      const double weight = args.weight.empty() ? 1.0 : F32(args.weight)[mine[i / wide]];
      gate[i] = round_(Gated(gate[i], up[i], args.limit) * weight);
    }
    Project(
        w.down, count, round_, [&](int i) { return gate + i * wide; },
        [&](int i) { return F32(args.out) + mine[i] * w.down.rows; });
  }
}

void RefOps::MoeCombine(Stream& stream, const MoeCombineArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.choices <= kChoicesMax);
  for (int64_t r = 0; r < args.rows; ++r) {
    const int32_t* expert = I32(args.expert) + r * args.choices;
    const float* weight = args.weight.empty() ? nullptr : F32(args.weight) + r * args.choices;
    std::array<int, kChoicesMax> order;
    for (int k = 0; k < args.choices; ++k) order[k] = k;
    std::sort(order.begin(), order.begin() + args.choices,
              [&](int a, int b) { return expert[a] < expert[b]; });
    float* sum = F32(args.sum) + r * args.width;
    for (int i = 0; i < args.width; ++i) {
      double total = 0;
      for (int k = 0; k < args.choices; ++k) {
        const float* out = F32(args.out) + (r * args.choices + order[k]) * args.width;
        total += (weight == nullptr ? 1.0 : weight[order[k]]) * out[i];
      }
      sum[i] = round_(sum[i] + total);
    }
  }
}

}  // namespace weir::kernels::ref
