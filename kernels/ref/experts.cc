// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/access.h"

namespace weir::kernels::ref {
namespace {

constexpr double kExcluded = -std::numeric_limits<double>::infinity();

// Index of the largest of n values, the lowest one among equals.
int Largest(const double* values, int n) {
  return static_cast<int>(std::max_element(values, values + n) - values);
}

// Sets to -inf every expert outside the best `kept` groups. A group's rank is the sum of its two
// best biased scores, of softmax scores its best. Excluded scores are -inf and not 0: a bias may be
// negative.
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
    rank[g] = width > 1 && args.score != RouteScore::kSoftmax ? best + second : best;
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

void Scores(const MoeRouteArgs& args, const double* logit, double* score) {
  if (args.score != RouteScore::kSoftmax) {
    for (int e = 0; e < args.experts; ++e) score[e] = ScoreOf(args.score, logit[e]);
    return;
  }
  const double top = *std::max_element(logit, logit + args.experts);
  double total = 0;
  for (int e = 0; e < args.experts; ++e) total += score[e] = std::exp(logit[e] - top);
  for (int e = 0; e < args.experts; ++e) score[e] /= total;
}

}  // namespace

void SelectExperts(const MoeRouteArgs& args, const double* logit, int64_t row) {
  const bool image = !args.image.empty() && I32(args.image)[row] != 0;
  const Tensor& bias = image ? args.image_bias : args.bias;
  std::array<double, kExpertsMax> score;
  std::array<double, kExpertsMax> biased;
  Scores(args, logit, score.data());
  for (int e = 0; e < args.experts; ++e) {
    biased[e] = bias.empty() ? score[e] : score[e] + F32(bias)[e];
  }
  if (args.groups > 1) LimitGroups(args, biased.data());
  int32_t* expert = I32(args.expert) + row * args.choices;
  float* weight = F32(args.weight) + row * args.choices;
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

std::array<int, kChoicesMax> InExpertOrder(const int32_t* expert, int choices) {
  std::array<int, kChoicesMax> order;
  for (int k = 0; k < choices; ++k) order[k] = k;
  std::sort(order.begin(), order.begin() + choices,
            [expert](int a, int b) { return expert[a] < expert[b]; });
  return order;
}

}  // namespace weir::kernels::ref
