// SPDX-License-Identifier: Apache-2.0
//
// Index selection of V4.1: scores of FP4 or FP8 keys on the tensor cores, then the exact best of a
// row by radix selection, ties to the lower entry, in ascending order. Candidates make the i-th
// entry looked at another than entry i; both orders ascend. Queries and keys are exact in BF16,
// sums are F32.
#include <cmath>

#include "base/stdx/check.h"
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kWidth = 128;
constexpr int kHeadsMax = 64;
constexpr int kTile = 64;  // entries of a block
constexpr int kScoreThreads = 128;
constexpr int kPitch = kWidth + 8;  // a row of shared memory, padded against bank conflicts
constexpr int kTopThreads = 256;
constexpr int kUnits = kWidth / 8;

struct IndexParams {
  const int32_t* position;
  const int32_t* sequence;
  PagedView keys;
  const float* q;
  const float* weight;
  const int32_t* candidates;  // null: every entry
  int heads;
  int blocks_kept;
  int block_entries;
  int looked_max;  // entries looked at, room of a row of `score`
  bool fp8;        // keys of 8 bits, not 4
  float scale;
  float* score;
};

__device__ __forceinline__ int VisibleOf(const IndexParams& p, int row) {
  return (p.position[row] + 1) / p.keys.ratio;
}

// The i-th entry that the row looks at; -1 beyond the last, and for every later i too.
__device__ __forceinline__ int LookedAt(const IndexParams& p, int row, int i) {
  int entry = i;
  if (p.candidates != nullptr) {
    const int64_t at = static_cast<int64_t>(row) * p.blocks_kept + i / p.block_entries;
    const int block = i / p.block_entries < p.blocks_kept ? p.candidates[at] : -1;
    if (block < 0) return -1;
    entry = block * p.block_entries + i % p.block_entries;
  }
  return entry < VisibleOf(p, row) ? entry : -1;
}

struct ScoreShared {
  uint16_t q[kHeadsMax][kPitch];
  uint16_t key[kTile][kPitch];
  float weight[kHeadsMax];
};

// Eight values of a key: two in a byte and a power of two for 32, or one and a power for all.
__device__ __forceinline__ uint4 ExpandKey(const unsigned char* row, int unit, bool fp8) {
  uint32_t to[4];
  if (fp8) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(row) + unit * 2;
    const float scale = dev::Load(reinterpret_cast<const float*>(row + kWidth));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = dev::Load(words + i / 2) >> (i % 2 * 16);
      to[i] = dev::PackBf16(dev::E4m3ToFloat(static_cast<uint8_t>(pair)) * scale,
                            dev::E4m3ToFloat(static_cast<uint8_t>(pair >> 8)) * scale);
    }
    return make_uint4(to[0], to[1], to[2], to[3]);
  }
  const uint32_t packed = dev::Load(reinterpret_cast<const uint32_t*>(row) + unit);
  const float scale = PowerOfTwo(row[kWidth / 2 + unit / 4]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = packed >> (i * 8);
    to[i] = dev::PackBf16(E2m1ToFloat(pair) * scale, E2m1ToFloat(pair >> 4) * scale);
  }
  return make_uint4(to[0], to[1], to[2], to[3]);
}

__device__ __forceinline__ void LoadTile(const IndexParams& p, ScoreShared& s, int row, int first) {
  for (int i = static_cast<int>(threadIdx.x); i < kHeadsMax * kWidth / 4; i += kScoreThreads) {
    const int h = i / (kWidth / 4);
    float4 x = make_float4(0, 0, 0, 0);
    if (h < p.heads) {
      const int64_t head = static_cast<int64_t>(row) * p.heads + h;
      x = dev::Load(reinterpret_cast<const float4*>(p.q + head * kWidth) + i % (kWidth / 4));
    }
    dev::Store(reinterpret_cast<uint2*>(&s.q[h][i % (kWidth / 4) * 4]),
               make_uint2(dev::PackBf16(x.x, x.y), dev::PackBf16(x.z, x.w)));
  }
  for (int h = static_cast<int>(threadIdx.x); h < kHeadsMax; h += kScoreThreads) {
    s.weight[h] = h < p.heads ? p.weight[static_cast<int64_t>(row) * p.heads + h] * p.scale : 0.0f;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kUnits; i += kScoreThreads) {
    const int entry = LookedAt(p, row, first + i / kUnits);
    uint4 values = make_uint4(0, 0, 0, 0);
    if (entry >= 0) {
      values = ExpandKey(RowAt(p.keys, p.sequence[row], entry * p.keys.ratio), i % kUnits, p.fp8);
    }
    dev::Store(reinterpret_cast<uint4*>(&s.key[i / kUnits][i % kUnits * 8]), values);
  }
}

// A block scores 64 entries of a row, a warp 16 of them against all heads.
__global__ void __launch_bounds__(kScoreThreads) IndexScoreKernel(const IndexParams p) {
  auto& s = dev::SharedMemory<ScoreShared>();
  const int row = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kTile;
  if (LookedAt(p, row, first) < 0) return;
  LoadTile(p, s, row, first);
  __syncthreads();
  const int lane = dev::Lane();
  const int entry0 = static_cast<int>(threadIdx.x) / 32 * 16;
  float dot[kHeadsMax / 8][4] = {};
#pragma unroll
  for (int k = 0; k < kWidth; k += 16) {
    uint32_t a[4];
    dev::LoadMatrix(a, &s.key[entry0 + lane % 16][k + lane / 16 * 8]);
#pragma unroll
    for (int h = 0; h < kHeadsMax; h += 16) {
      uint32_t b[4];
      dev::LoadMatrix(b, &s.q[h + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
      dev::Mma<dev::Operand::kBf16>(dot[h / 8], a, b[0], b[1]);
      dev::Mma<dev::Operand::kBf16>(dot[h / 8 + 1], a, b[2], b[3]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kHeadsMax / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        sum += fmaxf(dot[j][half * 2 + e], 0.0f) * s.weight[j * 8 + lane % 4 * 2 + e];
      }
    }
    sum += __shfl_xor_sync(dev::kAllLanes, sum, 1);
    sum += __shfl_xor_sync(dev::kAllLanes, sum, 2);
    const int i = first + entry0 + lane / 4 + half * 8;
    if (lane % 4 == 0 && i < p.looked_max) {
      // What is no number comes last, and there is one zero only.
      p.score[static_cast<int64_t>(row) * p.looked_max + i] = sum == sum ? sum + 0.0f : -INFINITY;
    }
  }
}

struct TopShared {
  uint32_t bins[256];
  uint32_t equal[kTopThreads / 32];  // counts by warp
  uint32_t taken[kTopThreads / 32];
  uint32_t prefix;
  uint32_t need;
};

// Unsigned numbers in the order of the floats.
__device__ __forceinline__ uint32_t OrderOf(float value) {
  const uint32_t bits = dev::FloatToBits(value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Leaves in s.prefix the order of the k-th best of n values, and in s.need how many equal to it
// count among the k. Byte by byte from the top; counts do not depend on who counted first.
__device__ __forceinline__ void FindThreshold(TopShared& s, const float* value, int n, int k) {
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    s.prefix = 0;
    s.need = static_cast<uint32_t>(k);
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    s.bins[t] = 0;
    __syncthreads();
    const uint32_t known = shift == 24 ? 0 : ~0u << (shift + 8);
    for (int i = t; i < n; i += kTopThreads) {
      const uint32_t order = OrderOf(value[i]);
      if ((order & known) == s.prefix) atomicAdd(&s.bins[order >> shift & 255], 1u);
    }
    __syncthreads();
    if (t == 0) {
      int bin = 255;
      while (bin > 0 && s.bins[bin] < s.need) s.need -= s.bins[bin--];
      s.prefix |= static_cast<uint32_t>(bin) << shift;
    }
    __syncthreads();
  }
}

// How many lanes of lower number, in lower warps too, have the flag; `count` holds one number a
// warp.
__device__ __forceinline__ uint32_t RankOf(bool flag, uint32_t* count, uint32_t* total) {
  const uint32_t votes = __ballot_sync(dev::kAllLanes, flag);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (dev::Lane() == 0) count[warp] = static_cast<uint32_t>(__popc(votes));
  __syncthreads();
  uint32_t rank = static_cast<uint32_t>(__popc(votes & ((1u << dev::Lane()) - 1)));
  *total = 0;
  for (int w = 0; w < kTopThreads / 32; ++w) {
    if (w < warp) rank += count[w];
    *total += count[w];
  }
  return rank;
}

// Writes name(i) of the k best of n values in ascending order of i, then -1 up to `k`.
template <class Name>
__device__ __forceinline__ void WriteBest(TopShared& s, const float* value, int n, int k,
                                          int32_t* to, Name&& name) {
  const int t = static_cast<int>(threadIdx.x);
  FindThreshold(s, value, n, min(n, k));
  const uint32_t threshold = s.prefix;
  const uint32_t need = s.need;
  uint32_t equals = 0;
  uint32_t written = 0;
  for (int base = 0; base < n; base += kTopThreads) {
    const int i = base + t;
    const uint32_t order = i < n ? OrderOf(value[i]) : 0;
    const bool equal = i < n && order == threshold;
    uint32_t total = 0;
    const uint32_t equal_rank = equals + RankOf(equal, s.equal, &total);
    equals += total;
    const bool take = i < n && (order > threshold || (equal && equal_rank < need));
    const uint32_t place = written + RankOf(take, s.taken, &total);
    written += total;
    // Either count is read before the other's barrier, and so before it is written again.
    if (take) to[place] = name(i);
  }
  for (int i = static_cast<int>(written) + t; i < k; i += kTopThreads) to[i] = -1;
}

// How many entries the row looks at.
__device__ __forceinline__ int LookedCount(const IndexParams& p, int row) {
  const int visible = VisibleOf(p, row);
  if (p.candidates == nullptr) return visible;
  int blocks = 0;
  while (blocks < p.blocks_kept &&
         p.candidates[static_cast<int64_t>(row) * p.blocks_kept + blocks] >= 0) {
    ++blocks;
  }
  if (blocks == 0) return 0;
  const int last = p.candidates[static_cast<int64_t>(row) * p.blocks_kept + blocks - 1];
  return (blocks - 1) * p.block_entries + min(visible - last * p.block_entries, p.block_entries);
}

__global__ void __launch_bounds__(kTopThreads)
    IndexTopKernel(const IndexParams p, int select, int32_t* selected) {
  auto& s = dev::SharedMemory<TopShared>();
  const int row = static_cast<int>(blockIdx.x);
  WriteBest(s, p.score + static_cast<int64_t>(row) * p.looked_max, LookedCount(p, row), select,
            selected + static_cast<int64_t>(row) * select,
            [&](int i) { return LookedAt(p, row, i); });
}

// A block is as good as its best entry, the newest the best of all.
__global__ void __launch_bounds__(kTopThreads)
    IndexBlocksKernel(const IndexParams p, float* best, int blocks_max, int32_t* kept) {
  auto& s = dev::SharedMemory<TopShared>();
  const int row = static_cast<int>(blockIdx.x);
  const int visible = VisibleOf(p, row);
  const int blocks = (visible + p.block_entries - 1) / p.block_entries;
  const float* score = p.score + static_cast<int64_t>(row) * p.looked_max;
  float* mine = best + static_cast<int64_t>(row) * blocks_max;
  for (int b = static_cast<int>(threadIdx.x); b < blocks; b += kTopThreads) {
    float top = -INFINITY;
    const int end = min((b + 1) * p.block_entries, visible);
    for (int i = b * p.block_entries; i < end; ++i) top = fmaxf(top, score[i]);
    mine[b] = b == blocks - 1 ? INFINITY : top;
  }
  __syncthreads();
  WriteBest(s, mine, blocks, p.blocks_kept, kept + static_cast<int64_t>(row) * p.blocks_kept,
            [](int i) { return i; });
}

int LookedMax(const IndexSelectArgs& args) {
  return args.candidates.empty() ? static_cast<int>(args.entries_max)
                                 : args.blocks_kept * args.block_entries;
}

int BlocksMax(const IndexSelectArgs& args) {
  return args.candidates_out.empty()
             ? 0
             : static_cast<int>((args.entries_max + args.block_entries - 1) / args.block_entries);
}

}  // namespace

int64_t IndexWorkspace(const IndexSelectArgs& args) {
  return int64_t{args.rows->count} * (LookedMax(args) + BlocksMax(args));
}

void IndexSelect(const Queue& queue, const IndexSelectArgs& args, const Tensor& workspace) {
  WEIR_CHECK(args.width == kWidth && args.heads <= kHeadsMax);
  const bool fp8 = args.keys.format == RowFormat::kFp8Block128;
  WEIR_CHECK((fp8 || args.keys.format == RowFormat::kFp4Block32) && args.keys.row_bytes % 4 == 0);
  WEIR_CHECK(args.candidates.empty() || args.candidates_out.empty());
  WEIR_CHECK(workspace.elements() >= IndexWorkspace(args));
  const auto rows = static_cast<unsigned>(args.rows->count);
  if (rows == 0) return;
  IndexParams p = {};
  p.position = As<const int32_t>(args.rows->position);
  p.sequence = As<const int32_t>(args.rows->sequence);
  p.keys = ViewOf(args.keys);
  p.q = As<const float>(args.q);
  p.weight = As<const float>(args.weight);
  p.candidates = As<const int32_t>(args.candidates);
  p.heads = args.heads;
  p.blocks_kept = args.blocks_kept;
  p.block_entries = args.block_entries;
  p.looked_max = LookedMax(args);
  p.fp8 = fp8;
  p.scale = args.scale;
  p.score = As<float>(workspace);
  Launch(queue, dim3(static_cast<unsigned>((p.looked_max + kTile - 1) / kTile), rows),
         dim3(kScoreThreads), sizeof(ScoreShared), IndexScoreKernel, p);
  Launch(queue, dim3(rows), dim3(kTopThreads), sizeof(TopShared), IndexTopKernel, p, args.select,
         As<int32_t>(args.selected));
  if (args.candidates_out.empty()) return;
  Launch(queue, dim3(rows), dim3(kTopThreads), sizeof(TopShared), IndexBlocksKernel, p,
         p.score + int64_t{args.rows->count} * p.looked_max, BlocksMax(args),
         As<int32_t>(args.candidates_out));
}

}  // namespace weir::kernels::cuda
