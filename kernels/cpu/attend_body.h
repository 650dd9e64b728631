// SPDX-License-Identifier: Apache-2.0
//
// The body of `attend`: scores of a tile of positions, the running softmax, and the weighted sum of
// values, for heads that share keys and values. A head's arithmetic does not depend on which heads
// it is computed with. The including file has defined Vec; everything is in an unnamed namespace.
#pragma once

#include "kernels/cpu/math_body.h"

namespace weir::kernels::cpu {
namespace {

constexpr int kDotHeads = Vec::kLanes == 16 ? 4 : 2;
constexpr int kDotRows = 4;
constexpr int kSumHeads = Vec::kLanes == 16 ? 4 : 2;
constexpr int kSumVectors = 4;

template <int kHeads, int kRows>
WEIR_LANE_CODE void ScoreBlock(const AttendTile& tile, int head, int row) {
  Vec::F dot[kHeads][kRows];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int t = 0; t < kRows; ++t) dot[h][t] = Vec::Zero();
  }
  const float* q = tile.q + head * tile.q_stride;
  const float* kv = tile.kv + row * tile.kv_stride;
  for (int i = 0; i < tile.width; i += Vec::kLanes) {
    Vec::F key[kRows];
#pragma GCC unroll 4
    for (int t = 0; t < kRows; ++t) key[t] = Vec::Load(kv + t * tile.kv_stride + i);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Vec::F query = Vec::Load(q + h * tile.q_stride + i);
#pragma GCC unroll 4
      for (int t = 0; t < kRows; ++t) dot[h][t] = Vec::Fma(query, key[t], dot[h][t]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int t = 0; t < kRows; ++t) {
      tile.scores[(head + h) * kAttendTile + row + t] = Vec::Sum(dot[h][t]) * tile.scale;
    }
  }
}

template <int kHeads>
WEIR_LANE_CODE void ScoreHeads(const AttendTile& tile, int head) {
  int row = 0;
  for (; row + kDotRows <= tile.count; row += kDotRows)
    ScoreBlock<kHeads, kDotRows>(tile, head, row);
  for (; row < tile.count; ++row) ScoreBlock<kHeads, 1>(tile, head, row);
}

// Turns one head's scores into weights and scales what was summed before.
WEIR_LANE_CODE void SoftmaxHead(const AttendTile& tile, int head) {
  float* scores = tile.scores + head * kAttendTile;
  // What lies behind the last position weighs nothing.
  for (int t = tile.count; t < kAttendTile; ++t) scores[t] = -1e30f;
  Vec::F most = Vec::Set1(tile.top[head]);
#pragma GCC unroll 8
  for (int t = 0; t < kAttendTile; t += Vec::kLanes) most = Vec::Max(most, Vec::Load(scores + t));
  const float top = Vec::MaxOf(most);
  Vec::F sum = Vec::Zero();
#pragma GCC unroll 8
  for (int t = 0; t < kAttendTile; t += Vec::kLanes) {
    const Vec::F weight = Exp(Vec::Sub(Vec::Load(scores + t), Vec::Set1(top)));
    Vec::Store(scores + t, weight);
    sum = Vec::Add(sum, weight);
  }
  float total = 0;
  if (tile.top[head] == top) {
    total = tile.total[head] + Vec::Sum(sum);
  } else {
    alignas(64) float factor[Vec::kLanes];
    Vec::Store(factor, Exp(Vec::Set1(tile.top[head] - top)));
    total = tile.total[head] * factor[0] + Vec::Sum(sum);
    float* acc = tile.acc + head * tile.acc_stride;
    const Vec::F by = Vec::Set1(factor[0]);
    for (int i = 0; i < tile.values; i += Vec::kLanes) {
      Vec::Store(acc + i, Vec::Mul(Vec::Load(acc + i), by));
    }
  }
  tile.top[head] = top;
  tile.total[head] = total;
}

template <int kHeads, int kWide>
WEIR_LANE_CODE void SumBlock(const AttendTile& tile, int head, int first) {
  Vec::F sum[kHeads][kWide];
  float* acc = tile.acc + head * tile.acc_stride + first;
  const float* weights = tile.scores + head * kAttendTile;
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v)
      sum[h][v] = Vec::Load(acc + h * tile.acc_stride + v * Vec::kLanes);
  }
  const float* kv = tile.kv + first;
  for (int t = 0; t < tile.count; ++t, kv += tile.kv_stride) {
    Vec::F value[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) value[v] = Vec::Load(kv + v * Vec::kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Vec::F weight = Vec::Set1(weights[h * kAttendTile + t]);
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) sum[h][v] = Vec::Fma(weight, value[v], sum[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v)
      Vec::Store(acc + h * tile.acc_stride + v * Vec::kLanes, sum[h][v]);
  }
}

template <int kHeads>
WEIR_LANE_CODE void SumHeads(const AttendTile& tile, int head) {
  constexpr int kWide = kSumVectors * Vec::kLanes;
  int i = 0;
  for (; i + kWide <= tile.values; i += kWide) SumBlock<kHeads, kSumVectors>(tile, head, i);
  for (; i < tile.values; i += Vec::kLanes) SumBlock<kHeads, 1>(tile, head, i);
}

void AttendOneTile(const AttendTile& tile) {
  int head = 0;
  for (; head + kDotHeads <= tile.heads; head += kDotHeads) ScoreHeads<kDotHeads>(tile, head);
  for (; head < tile.heads; ++head) ScoreHeads<1>(tile, head);
  for (head = 0; head < tile.heads; ++head) SoftmaxHead(tile, head);
  for (head = 0; head + kSumHeads <= tile.heads; head += kSumHeads) SumHeads<kSumHeads>(tile, head);
  for (; head < tile.heads; ++head) SumHeads<1>(tile, head);
}

}  // namespace
}  // namespace weir::kernels::cpu
