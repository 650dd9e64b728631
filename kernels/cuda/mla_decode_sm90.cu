// SPDX-License-Identifier: Apache-2.0
//
// Multi-head latent attention over a paged store (512 latent and 64 rotated values a token). A
// block takes up to 64 heads of one row and one split of its sequence. Tiles of 64 tokens come
// double-buffered for the two warpgroups that attend: BF16 rows by one thread and the copy engine,
// FP8 rows through a warpgroup that expands them, which is exact. A second kernel joins the splits.
#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "kernels/cuda/attend_sm90.cuh"
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/tma_sm90.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kLatent = kValues;
constexpr int kRope = 64;
constexpr int kColumns = kLatent + kRope;
constexpr int kBlocks = kColumns / 64;  // column blocks of 128 bytes
constexpr int kThreads = kConsumers + kProducers;
constexpr int kUnits = kColumns / kUnit;
constexpr int kSplitsMax = 16;
constexpr int kSplitTokensMin = 256;
constexpr int kJoinThreads = 128;

using MlaShared = AttendShared<kBlocks>;
static_assert(sizeof(MlaShared) <= 232448, "more than a block can have");

struct MlaParams {
  const float* q_latent;
  const float* q;
  const int32_t* position;
  const int32_t* sequence;
  PagedView kv;
  float* part;  // [row, head, split, latent], or the output when there is one split
  float* lse;   // [row, head, split], in powers of two
  int heads;
  int nope;
  int splits;
  int split_tokens;
  float scale_log2;
};

// The block's queries; rows of heads that do not exist are zero.
__device__ __forceinline__ void LoadQueries(const MlaParams& p, MlaShared& s, int row, int head0) {
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kColumns / 4; i += kThreads) {
    const int h = i / (kColumns / 4);
    const int column = i % (kColumns / 4) * 4;
    float4 x = make_float4(0, 0, 0, 0);
    if (head0 + h < p.heads) {
      const int64_t head = static_cast<int64_t>(row) * p.heads + head0 + h;
      const float* from = column < kLatent
                              ? p.q_latent + head * kLatent + column
                              : p.q + head * (p.nope + kRope) + p.nope + column - kLatent;
      x = dev::Load(reinterpret_cast<const float4*>(from));
    }
    StoreQuery(s, h, column, x);
  }
}

// Brings the tiles of tokens [begin, end), page by page; what lies beyond `end` may come with them.
__device__ __forceinline__ void Produce(const MlaParams& p, MlaShared& s, const dev::TensorMap& map,
                                        int sequence, int begin, int end) {
  const int box = p.kv.page_tokens < kTile ? p.kv.page_tokens : kTile;
  const int32_t* table = p.kv.table + static_cast<int64_t>(sequence) * p.kv.table_stride;
  for (int tile = 0; begin + tile * kTile < end; ++tile) {
    const int stage = tile % kStages;
    const int first = begin + tile * kTile;
    const int boxes = (min(end - first, kTile) + box - 1) / box;
    dev::MbarrierWait(&s.empty[stage], (static_cast<uint32_t>(tile / kStages) & 1) ^ 1);
    dev::MbarrierExpect(&s.full[stage], static_cast<uint32_t>(boxes * box * kColumns * 2));
    for (int i = 0; i < boxes; ++i) {
      const int token = first + i * box;
      const int page = table[token / p.kv.page_tokens];
      for (int c = 0; c < kBlocks; ++c) {
        dev::TensorLoad(&s.kv[stage][c][i * box * 64], map,
                        {c * 64, token % p.kv.page_tokens, page}, &s.full[stage]);
      }
    }
  }
}

__device__ __forceinline__ void ProduceFp8(const MlaParams& p, MlaShared& s, int sequence,
                                           int begin, int end) {
  const int t = static_cast<int>(threadIdx.x) - kConsumers;
  for (int tile = 0; begin + tile * kTile < end; ++tile) {
    const int stage = tile % kStages;
    dev::MbarrierWait(&s.empty[stage], (static_cast<uint32_t>(tile / kStages) & 1) ^ 1);
    for (int i = t; i < kTile * kUnits; i += kProducers) {
      const int row = RowOfUnit(i, kUnits);
      const int unit = UnitOf(i, kUnits);
      const int token = begin + tile * kTile + row;
      uint32_t values[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      if (token < end) ExpandFp8(RowAt(p.kv, sequence, token), kColumns, unit, values);
      StoreUnit(s, stage, row, unit, values);
    }
    dev::FenceProxy();
    dev::MbarrierArrive(&s.full[stage]);
  }
}

// What lies beyond the sequence counts for nothing, but 0 times a stray NaN would not be 0.
__device__ __forceinline__ void ClearTail(MlaShared& s, int stage, int valid) {
  if (valid == kTile) return;
  const int rows = kTile - valid;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kBlocks * 8; i += kConsumers) {
    const int row = valid + i / (kBlocks * 8);
    const int chunk = i % (kBlocks * 8);
    dev::Store(reinterpret_cast<uint4*>(&s.kv[stage][chunk / 8][row * 64 + chunk % 8 * 8]),
               make_uint4(0, 0, 0, 0));
  }
  dev::FenceProxy();
  dev::BarrierSync(1, kConsumers);
}

template <bool kFp8>
__device__ __forceinline__ void Consume(const MlaParams& p, MlaShared& s, int row, int head0,
                                        int tokens) {
  float sum[128];
  Running run;
  Attend(
      s, tokens, p.scale_log2,
      [&](int stage, int valid) {
        if (!kFp8) ClearTail(s, stage, valid);
      },
      &run, sum);
  float total[2];
  JoinSums(s, run, total);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = head0 + HeadOf(h);
    if (head >= p.heads) continue;
    const int64_t at = (static_cast<int64_t>(row) * p.heads + head) * p.splits + blockIdx.x;
    const bool first = threadIdx.x < 128 && dev::Lane() % 4 == 0;
    if (first && p.splits > 1) p.lse[at] = run.top[h] + log2f(total[h]);
    WriteHead(p.part + at * kLatent, sum, h, 1.0f / total[h]);
  }
}

template <bool kFp8>
__global__ void __launch_bounds__(kThreads, 1)
    MlaDecodeKernel(const MlaParams p, const __grid_constant__ dev::TensorMap map) {
  auto& s = dev::SharedMemory<MlaShared>();
  const int row = static_cast<int>(blockIdx.z);
  const int head0 = static_cast<int>(blockIdx.y) * kHeads;
  const int begin = static_cast<int>(blockIdx.x) * p.split_tokens;
  const int end = min(p.position[row] + 1, begin + p.split_tokens);
  if (begin >= end) return;  // the join knows how many splits a row has
  if (threadIdx.x == 0) InitStages(s, kFp8 ? kProducers : 1);
  LoadQueries(p, s, row, head0);
  dev::FenceProxy();
  __syncthreads();
  if (threadIdx.x < kConsumers) {
    dev::TakeRegisters<kFp8 ? 208 : 240>();
    Consume<kFp8>(p, s, row, head0, end - begin);
  } else {
    dev::GiveRegisters<kFp8 ? 80 : 24>();
    if constexpr (kFp8) {
      ProduceFp8(p, s, p.sequence[row], begin, end);
    } else if (threadIdx.x == kConsumers) {
      Produce(p, s, map, p.sequence[row], begin, end);
    }
  }
}

// out = sum of 2^(lse - top) part over the row's splits, in their order.
__global__ void __launch_bounds__(kJoinThreads)
    MlaJoinKernel(const float* part, const float* lse, const int32_t* position, float* out,
                  int heads, int splits, int split_tokens) {
  const int row = static_cast<int>(blockIdx.y);
  const int64_t head = static_cast<int64_t>(row) * heads + blockIdx.x;
  const int mine = position[row] / split_tokens + 1;
  float top = -INFINITY;
  for (int i = 0; i < mine; ++i) top = fmaxf(top, lse[head * splits + i]);
  float total = 0;
  float4 sum = make_float4(0, 0, 0, 0);
  for (int i = 0; i < mine; ++i) {
    const float weight = dev::Exp2(lse[head * splits + i] - top);
    const float4 x = dev::Load(
        reinterpret_cast<const float4*>(part + (head * splits + i) * kLatent) + threadIdx.x);
    total += weight;
    sum = make_float4(sum.x + weight * x.x, sum.y + weight * x.y, sum.z + weight * x.z,
                      sum.w + weight * x.w);
  }
  dev::Store(reinterpret_cast<float4*>(out + head * kLatent) + threadIdx.x,
             make_float4(sum.x / total, sum.y / total, sum.z / total, sum.w / total));
}

// The length of a split depends on the room of the table alone, so that a row's bits do not depend
// on the batch.
int SplitTokens(const PagedKv& kv) {
  const int room = kv.table_stride * kv.page_tokens;
  const int even = (room + kSplitsMax - 1) / kSplitsMax;
  return (max(even, kSplitTokensMin) + kTile - 1) / kTile * kTile;
}

int Splits(const PagedKv& kv) {
  const int tokens = SplitTokens(kv);
  return (kv.table_stride * kv.page_tokens + tokens - 1) / tokens;
}

}  // namespace

int64_t MlaWorkspace(const MlaAttentionArgs& args) {
  const int splits = Splits(args.kv);
  return splits == 1 ? 0 : int64_t{args.rows->count} * args.heads * splits * (kLatent + 1);
}

void MlaAttention(const Queue& queue, const MlaAttentionArgs& args, const Tensor& workspace) {
  WEIR_CHECK(args.select == 0);  // all positions
  WEIR_CHECK(args.latent == kLatent && args.rope == kRope && args.nope % 4 == 0);
  const bool fp8 = args.kv.format == RowFormat::kFp8Block32;
  WEIR_CHECK(fp8 || args.kv.format == RowFormat::kBf16);
  WEIR_CHECK(args.kv.row_bytes >= static_cast<int64_t>(RowBytes(args.kv.format, kColumns)));
  WEIR_CHECK((args.kv.row_bytes | args.kv.page_bytes | args.kv.layer_offset) % 16 == 0);
  const int page = args.kv.page_tokens;
  WEIR_CHECK(page % kTile == 0 || (kTile % page == 0 && page % 8 == 0));
  WEIR_CHECK(workspace.elements() >= MlaWorkspace(args));
  const int rows = args.rows->count;
  if (rows == 0) return;
  const PagedView kv = ViewOf(args.kv);
  MlaParams p = {};
  p.q_latent = As<const float>(args.q_latent);
  p.q = As<const float>(args.q);
  p.position = As<const int32_t>(args.rows->position);
  p.sequence = As<const int32_t>(args.rows->sequence);
  p.kv = kv;
  p.heads = args.heads;
  p.nope = args.nope;
  p.splits = Splits(args.kv);
  p.split_tokens = SplitTokens(args.kv);
  p.scale_log2 = args.scale * 1.44269504088896340736f;
  if (IsPlanted(Planted::kWrongAttention)) p.scale_log2 *= 1.05f;
  p.part = p.splits == 1 ? As<float>(args.out) : As<float>(workspace);
  p.lse = p.part + int64_t{rows} * args.heads * p.splits * kLatent;
  const dim3 grid(static_cast<unsigned>(p.splits),
                  static_cast<unsigned>((args.heads + kHeads - 1) / kHeads),
                  static_cast<unsigned>(rows));
  if (fp8) {
    Launch(queue, grid, dim3(kThreads), sizeof(MlaShared), MlaDecodeKernel<true>, p,
           dev::TensorMap());
  } else {
    Launch(queue, grid, dim3(kThreads), sizeof(MlaShared), MlaDecodeKernel<false>, p,
           PagedBf16Map(kv, kColumns, min(page, kTile)));
  }
  if (p.splits == 1) return;
  Launch(queue, dim3(static_cast<unsigned>(args.heads), static_cast<unsigned>(rows)),
         dim3(kJoinThreads), 0, MlaJoinKernel, static_cast<const float*>(p.part),
         static_cast<const float*>(p.lse), p.position, As<float>(args.out), args.heads, p.splits,
         p.split_tokens);
}

}  // namespace weir::kernels::cuda
