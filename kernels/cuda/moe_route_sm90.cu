// SPDX-License-Identifier: Apache-2.0
//
// Which experts a row takes, from the gate's product: a warp a row. Scores are F64, so that near
// ties fall as they do in the reference; each choice is the best of what is left, the lower expert
// among equals.
#include <cmath>

#include "base/stdx/check.h"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kExpertsMax = 512;
constexpr int kPerLane = kExpertsMax / 32;  // expert e is lane e % 32's number e / 32
constexpr int kGroupsMax = 32;
constexpr int kChoicesMax = 32;

struct SelectParams {
  const float* logit;
  const float* bias;
  const float* image_bias;
  const int32_t* image;
  int32_t* expert;
  float* weight;
  int experts;
  int groups;
  int groups_kept;
  int choices;
  bool normalise;
  bool sigmoid;
  float scale;
};

struct SelectShared {
  double biased[kExpertsMax];
};

struct Best {
  double value;
  int index;
};

// The largest of all lanes' candidates, the lower index among equals.
__device__ __forceinline__ Best BestOfWarp(Best mine) {
  for (int by = 16; by > 0; by /= 2) {
    const double value = __shfl_xor_sync(dev::kAllLanes, mine.value, by);
    const int index = __shfl_xor_sync(dev::kAllLanes, mine.index, by);
    if (value > mine.value || (value == mine.value && index < mine.index)) mine = {value, index};
  }
  return mine;
}

__device__ __forceinline__ double ScoreOf(bool sigmoid, double logit) {
  if (sigmoid) return 1.0 / (1.0 + exp(-logit));
  return sqrt(fmax(logit, 0.0) + log1p(exp(-fabs(logit))));
}

// The sum of a group's two best, for lane `group`.
__device__ __forceinline__ double RankOf(const double* biased, int group, int width) {
  double best = -INFINITY;
  double second = -INFINITY;
  for (int i = 0; i < width; ++i) {
    const double value = biased[group * width + i];
    if (value > best) {
      second = best;
      best = value;
    } else if (value > second) {
      second = value;
    }
  }
  return width > 1 ? best + second : best;
}

// Bit g: group g is among the best.
__device__ __forceinline__ uint32_t KeptGroups(const SelectParams& p, const double* biased) {
  const int lane = dev::Lane();
  double rank = -INFINITY;
  if (lane < p.groups) rank = RankOf(biased, lane, p.experts / p.groups);
  bool taken = lane >= p.groups;
  uint32_t kept = 0;
  for (int i = 0; i < p.groups_kept; ++i) {
    const Best best = BestOfWarp({taken ? -INFINITY : rank, taken ? kGroupsMax + lane : lane});
    if (best.index >= kGroupsMax) break;
    kept |= 1u << best.index;
    taken = taken || lane == best.index;
  }
  return kept;
}

__global__ void __launch_bounds__(32) MoeSelectKernel(const SelectParams p) {
  auto& s = dev::SharedMemory<SelectShared>();
  const int lane = dev::Lane();
  const int64_t row = blockIdx.x;
  const bool image = p.image != nullptr && p.image[row] != 0;
  const float* bias = image ? p.image_bias : p.bias;
  double score[kPerLane];
  double biased[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = i * 32 + lane;
    score[i] = 0;
    biased[i] = -INFINITY;
    if (e >= p.experts) continue;
    score[i] = ScoreOf(p.sigmoid, p.logit[row * p.experts + e]);
    biased[i] = score[i] + bias[e];
    s.biased[e] = biased[i];
  }
  __syncwarp();
  if (p.groups > 1) {
    const uint32_t kept = KeptGroups(p, s.biased);
    const int width = p.experts / p.groups;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * 32 + lane;
      if (e < p.experts && (kept >> (e / width) & 1) == 0) biased[i] = -INFINITY;
    }
  }
  double total = 0;
  double mine = 0;  // the score of choice `lane`
  int chosen = 0;
  for (int k = 0; k < p.choices; ++k) {
    Best best = {-INFINITY, kExpertsMax + lane};
    double its_score = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (biased[i] > best.value) {
        best = {biased[i], i * 32 + lane};
        its_score = score[i];
      }
    }
    const Best winner = BestOfWarp(best);
    its_score = __shfl_sync(dev::kAllLanes, its_score, winner.index % 32);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (i * 32 + lane == winner.index) biased[i] = -INFINITY;
    }
    total += its_score;
    if (lane == k) {
      mine = its_score;
      chosen = winner.index;
    }
  }
  if (lane >= p.choices) return;
  const double divisor = p.normalise ? total + 1e-20 : 1.0;
  p.expert[row * p.choices + lane] = chosen;
  p.weight[row * p.choices + lane] = static_cast<float>(mine / divisor * p.scale);
}

}  // namespace

void MoeSelect(const Queue& queue, const MoeRouteArgs& args, const Tensor& logit) {
  WEIR_CHECK(args.score != RouteScore::kSoftmax && !args.bias.empty());
  WEIR_CHECK(args.experts <= kExpertsMax && args.groups <= kGroupsMax);
  WEIR_CHECK(args.choices <= kChoicesMax && args.choices <= args.experts);
  if (args.rows == 0) return;
  SelectParams p = {};
  p.logit = As<const float>(logit);
  p.bias = As<const float>(args.bias);
  p.image_bias = As<const float>(args.image_bias);
  p.image = As<const int32_t>(args.image);
  p.expert = As<int32_t>(args.expert);
  p.weight = As<float>(args.weight);
  p.experts = args.experts;
  p.groups = args.groups;
  p.groups_kept = args.groups_kept;
  p.choices = args.choices;
  p.normalise = args.normalise;
  p.sigmoid = args.score == RouteScore::kSigmoid;
  p.scale = args.scale;
  Launch(queue, dim3(static_cast<unsigned>(args.rows)), dim3(32), sizeof(SelectShared),
         MoeSelectKernel, p);
}

}  // namespace weir::kernels::cuda
