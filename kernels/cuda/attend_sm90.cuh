// SPDX-License-Identifier: Apache-2.0
//
// The inside of attention over rows that are key and value at once: 64 heads against tiles of 64
// rows of BF16 in shared memory. Two warpgroups each score half of a tile's rows, share maxima and
// probabilities through shared memory, and each sum half of 512 value columns, so that a 64 x 512
// sum fits in their registers. Somebody else fills the tiles: the stages' mbarriers say when. All
// 256 threads call each function together.
#pragma once

#include <cmath>

#include "kernels/cuda/device.cuh"

namespace weir::kernels::cuda {

constexpr int kHeads = 64;  // of one block
constexpr int kTile = 64;   // rows of keys
constexpr int kStages = 2;
constexpr int kConsumers = 256;
constexpr int kProducers = 128;  // registers change hands by warpgroup
constexpr int kUnit = 16;        // values that a producer expands at once
constexpr int kValues = 512;     // columns that are summed, the first of each row

// Every column block is 64 rows of 128 bytes, swizzled.
template <int kBlocks>
struct AttendShared {
  uint16_t q[kBlocks][kHeads * 64];
  uint16_t kv[kStages][kBlocks][kTile * 64];
  uint16_t p[kHeads * kTile];
  float top[2][kHeads];  // by warpgroup
  float sum[2][kHeads];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// 16-byte chunk `chunk` of row `row` in a swizzled block, in elements.
__device__ __forceinline__ int Swizzled(int row, int chunk) {
  return row * 64 + (chunk ^ (row & 7)) * 8;
}

// Which unit of a tile producer step i takes: eight neighbours have four units of two rows, whole
// sectors where they come from and all banks where they go.
__device__ __forceinline__ int RowOfUnit(int i, int units) {
  return i / (units * 2) * 2 + i / 4 % 2;
}
__device__ __forceinline__ int UnitOf(int i, int units) { return i / 8 % (units / 4) * 4 + i % 4; }

template <int kBlocks>
__device__ __forceinline__ void StoreUnit(AttendShared<kBlocks>& s, int stage, int row, int unit,
                                          const uint32_t (&values)[8]) {
  uint16_t* block = s.kv[stage][unit / 4];
  const int chunk = unit % 4 * 2;
  dev::Store(reinterpret_cast<uint4*>(&block[Swizzled(row, chunk)]),
             make_uint4(values[0], values[1], values[2], values[3]));
  dev::Store(reinterpret_cast<uint4*>(&block[Swizzled(row, chunk + 1)]),
             make_uint4(values[4], values[5], values[6], values[7]));
}

// A thread's share of the softmax: its heads are warp * 16 + lane / 4 + 8 h.
struct Running {
  float top[2];
  float sum[2];
};

__device__ __forceinline__ int HeadOf(int h) {
  const int t = static_cast<int>(threadIdx.x) % 128;
  return t / 32 * 16 + t % 32 / 4 + h * 8;
}

// One warpgroup's scores: 64 heads by the 32 rows of its half.
template <int kBlocks>
__device__ __forceinline__ void Score(AttendShared<kBlocks>& s, int stage, int half,
                                      float (&score)[16]) {
  dev::WgmmaFence();
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
#pragma unroll
    for (int k = 0; k < 64; k += 16) {
      const uint64_t a = dev::MatrixDescriptor(&s.q[c][k], dev::Swizzle::k128, 0, 1024);
      const uint64_t b =
          dev::MatrixDescriptor(&s.kv[stage][c][half * 32 * 64 + k], dev::Swizzle::k128, 0, 1024);
      dev::Wgmma<dev::Operand::kBf16, 32>(score, a, b, c + k != 0);
    }
  }
  dev::WgmmaCommit();
  dev::WgmmaWait<0>();
}

// sum += P V over the warpgroup's half of the value columns.
template <int kBlocks>
__device__ __forceinline__ void Accumulate(AttendShared<kBlocks>& s, int stage, int half,
                                           float (&sum)[128]) {
  dev::WgmmaFence();
#pragma unroll
  for (int k = 0; k < kTile; k += 16) {
    const uint64_t a = dev::MatrixDescriptor(&s.p[k], dev::Swizzle::k128, 0, 1024);
    const uint64_t b = dev::MatrixDescriptor(&s.kv[stage][half * 4][k * 64], dev::Swizzle::k128,
                                             kTile * 128, 1024);
    dev::Wgmma<dev::Operand::kBf16, 256, dev::Major::kK, dev::Major::kOuter>(sum, a, b, true);
  }
  dev::WgmmaCommit();
  dev::WgmmaWait<0>();
}

// Turns scores into probabilities in s.p and answers by how much the sums so far shrink. The first
// `valid` rows of the tile count, at least one.
template <int kBlocks>
__device__ __forceinline__ void Softmax(AttendShared<kBlocks>& s, float (&score)[16], int half,
                                        int valid, float scale_log2, Running* run,
                                        float (&shrink)[2]) {
  const int quarter = dev::Lane() % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = -INFINITY;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = score[j * 4 + h * 2 + e];
        x = half * 32 + j * 8 + quarter * 2 + e < valid ? x * scale_log2 : -INFINITY;
        top = fmaxf(top, x);
      }
    }
    top = fmaxf(top, __shfl_xor_sync(dev::kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(dev::kAllLanes, top, 2));
    if (quarter == 0) s.top[half][HeadOf(h)] = top;
  }
  dev::BarrierSync(2, kConsumers);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = HeadOf(h);
    const float top = fmaxf(run->top[h], fmaxf(s.top[0][head], s.top[1][head]));
    shrink[h] = dev::Exp2(run->top[h] - top);
    run->top[h] = top;
    float total = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float a = dev::Exp2(score[j * 4 + h * 2] - top);
      const float b = dev::Exp2(score[j * 4 + h * 2 + 1] - top);
      const uint32_t packed = dev::PackBf16(a, b);
      dev::Store(reinterpret_cast<uint32_t*>(&s.p[Swizzled(head, half * 4 + j) + quarter * 2]),
                 packed);
      // What is divided by later is what was multiplied: the rounded values.
      total += dev::Bf16ToFloat(static_cast<uint16_t>(packed)) +
               dev::Bf16ToFloat(static_cast<uint16_t>(packed >> 16));
    }
    run->sum[h] = run->sum[h] * shrink[h] + total;
  }
  dev::FenceProxy();
  dev::BarrierSync(3, kConsumers);
}

// Attends to the first `rows` rows that come through the stages. `prepare(stage, valid)` may mend a
// tile before it is read.
template <int kBlocks, class Prepare>
__device__ __forceinline__ void Attend(AttendShared<kBlocks>& s, int rows, float scale_log2,
                                       Prepare&& prepare, Running* run, float (&sum)[128]) {
  const int half = static_cast<int>(threadIdx.x) / 128;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum[i] = 0;
  *run = {{-INFINITY, -INFINITY}, {0, 0}};
  for (int tile = 0; tile * kTile < rows; ++tile) {
    const int stage = tile % kStages;
    const int valid = min(rows - tile * kTile, kTile);
    dev::MbarrierWait(&s.full[stage], static_cast<uint32_t>(tile / kStages) & 1);
    prepare(stage, valid);
    float score[16];
    Score(s, stage, half, score);
    float shrink[2];
    Softmax(s, score, half, valid, scale_log2, run, shrink);
#pragma unroll
    for (int i = 0; i < 128; ++i) sum[i] *= shrink[i / 2 % 2];
    Accumulate(s, stage, half, sum);
    __syncwarp();
    if (dev::Lane() == 0) dev::MbarrierArrive(&s.empty[stage]);
  }
}

// The sums of both warpgroups' probabilities, for the thread's two heads.
template <int kBlocks>
__device__ __forceinline__ void JoinSums(AttendShared<kBlocks>& s, const Running& run,
                                         float (&total)[2]) {
  const int half = static_cast<int>(threadIdx.x) / 128;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float mine = run.sum[h];
    mine += __shfl_xor_sync(dev::kAllLanes, mine, 1);
    mine += __shfl_xor_sync(dev::kAllLanes, mine, 2);
    if (dev::Lane() % 4 == 0) s.sum[half][HeadOf(h)] = mine;
  }
  dev::BarrierSync(2, kConsumers);
#pragma unroll
  for (int h = 0; h < 2; ++h) total[h] = s.sum[0][HeadOf(h)] + s.sum[1][HeadOf(h)];
}

// Writes the thread's part of head(h): to = the head's 512 values.
__device__ __forceinline__ void WriteHead(float* to, const float (&sum)[128], int h, float factor) {
  const int half = static_cast<int>(threadIdx.x) / 128;
  auto* pair = reinterpret_cast<float2*>(to + half * 256) + dev::Lane() % 4;
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    dev::Store(pair + j * 4,
               make_float2(sum[j * 4 + h * 2] * factor, sum[j * 4 + h * 2 + 1] * factor));
  }
}

// Four values of head `head` as BF16 into the swizzled queries.
template <int kBlocks>
__device__ __forceinline__ void StoreQuery(AttendShared<kBlocks>& s, int head, int column,
                                           float4 x) {
  const int at = Swizzled(head, column % 64 / 8) + column % 8;
  dev::Store(reinterpret_cast<uint2*>(&s.q[column / 64][at]),
             make_uint2(dev::PackBf16(x.x, x.y), dev::PackBf16(x.z, x.w)));
}

// The caller's next fence.proxy.async shows them to the copy engine.
template <int kBlocks>
__device__ __forceinline__ void InitStages(AttendShared<kBlocks>& s, int producers) {
  for (int i = 0; i < kStages; ++i) {
    dev::MbarrierInit(&s.full[i], producers);
    dev::MbarrierInit(&s.empty[i], kConsumers / 32);
  }
}

}  // namespace weir::kernels::cuda
