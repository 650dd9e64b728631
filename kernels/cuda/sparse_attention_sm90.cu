// SPDX-License-Identifier: Apache-2.0
//
// Sparse attention of V4.1: one softmax over a row's window (FP8) and its selected entries (NVFP4),
// with a sink a head. A block takes up to 64 heads of one row. A warpgroup fetches rows from where
// they lie, the step itself, the ring or pages, and expands them to BF16, which is exact: a value
// has at most six significant bits. Two more attend to what it made.
#include "base/stdx/check.h"
#include "kernels/cuda/attend_sm90.cuh"
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kWidth = kValues;
constexpr int kBlocks = kWidth / 64;
constexpr int kThreads = kConsumers + kProducers;
constexpr int kUnits = kWidth / kUnit;
constexpr float kLog2E = 1.44269504088896340736f;

struct SparseShared {
  AttendShared<kBlocks> attend;
  int32_t listed[kThreads / 32];  // selected entries, by the warp that counted them
};
static_assert(sizeof(SparseShared) <= 232448, "more than a block can have");

struct SparseParams {
  RowsView rows;
  const int32_t* visible_from;
  const int32_t* fresh_from;
  const float* q;
  const unsigned char* fresh;
  const unsigned char* ring;  // of this layer
  const int32_t* state;
  int64_t state_bytes;
  int64_t ring_row_bytes;
  int ring_rows;
  PagedView entries;
  const int32_t* selected;
  const float* sink;
  float* out;
  int heads;
  int window;
  int select;
  float scale;
};

// The keys of a row: its window from `first` on, then its list.
struct Keys {
  int row;
  int position;
  int sequence;
  int first;
  int windows;
  int count;
};

__device__ __forceinline__ Keys KeysOf(const SparseParams& p, SparseShared& s, int row) {
  int mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.select; i += kThreads) {
    mine += p.selected[static_cast<int64_t>(row) * p.select + i] >= 0 ? 1 : 0;
  }
  const uint32_t listed = __reduce_add_sync(dev::kAllLanes, static_cast<uint32_t>(mine));
  if (dev::Lane() == 0) s.listed[threadIdx.x / 32] = static_cast<int32_t>(listed);
  __syncthreads();
  Keys keys;
  keys.row = row;
  keys.position = p.rows.position[row];
  keys.sequence = p.rows.sequence[row];
  keys.first = max(max(keys.position - p.window + 1, 0), p.visible_from[row]);
  keys.windows = keys.position + 1 - keys.first;
  keys.count = keys.windows;
  for (const int32_t part : s.listed) keys.count += part;
  return keys;
}

__device__ __forceinline__ const unsigned char* WindowRow(const SparseParams& p, const Keys& keys,
                                                          int at) {
  if (at >= p.fresh_from[keys.row]) {
    return p.fresh + (keys.row - (keys.position - at)) * p.ring_row_bytes;
  }
  return p.ring + p.state[keys.sequence] * p.state_bytes + at % p.ring_rows * p.ring_row_bytes;
}

// 16 values of an entry: e2m1, an e4m3 scale for each 16.
__device__ __forceinline__ void ExpandFp4(const unsigned char* row, int unit, uint32_t (&to)[8]) {
  const uint2 packed = dev::Load(reinterpret_cast<const uint2*>(row) + unit);
  const float scale = dev::E4m3ToFloat(row[kWidth / 2 + unit]);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t pair = (i < 4 ? packed.x : packed.y) >> (i % 4 * 8);
    to[i] = dev::PackBf16(E2m1ToFloat(pair) * scale, E2m1ToFloat(pair >> 4) * scale);
  }
}

__device__ __forceinline__ void Produce(const SparseParams& p, AttendShared<kBlocks>& s,
                                        const Keys& keys) {
  const int t = static_cast<int>(threadIdx.x) - kConsumers;
  for (int tile = 0; tile * kTile < keys.count; ++tile) {
    const int stage = tile % kStages;
    dev::MbarrierWait(&s.empty[stage], (static_cast<uint32_t>(tile / kStages) & 1) ^ 1);
    for (int i = t; i < kTile * kUnits; i += kProducers) {
      const int row = RowOfUnit(i, kUnits);
      const int unit = UnitOf(i, kUnits);
      const int key = tile * kTile + row;
      uint32_t values[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      if (key < keys.windows) {
        ExpandFp8(WindowRow(p, keys, keys.first + key), kWidth, unit, values);
      } else if (key < keys.count) {
        const int entry =
            p.selected[static_cast<int64_t>(keys.row) * p.select + key - keys.windows];
        ExpandFp4(RowAt(p.entries, keys.sequence, entry * p.entries.ratio), unit, values);
      }
      StoreUnit(s, stage, row, unit, values);
    }
    dev::FenceProxy();
    dev::MbarrierArrive(&s.full[stage]);
  }
}

__global__ void __launch_bounds__(kThreads, 1) SparseAttentionKernel(const SparseParams p) {
  auto& s = dev::SharedMemory<SparseShared>();
  const int row = static_cast<int>(blockIdx.y);
  const int head0 = static_cast<int>(blockIdx.x) * kHeads;
  if (threadIdx.x == 0) InitStages(s.attend, kProducers);
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kWidth / 4; i += kThreads) {
    const int h = i / (kWidth / 4);
    float4 x = make_float4(0, 0, 0, 0);
    if (head0 + h < p.heads) {
      const int64_t head = static_cast<int64_t>(row) * p.heads + head0 + h;
      x = dev::Load(reinterpret_cast<const float4*>(p.q + head * kWidth) + i % (kWidth / 4));
    }
    StoreQuery(s.attend, h, i % (kWidth / 4) * 4, x);
  }
  dev::FenceProxy();
  const Keys keys = KeysOf(p, s, row);  // has the barrier that shows queries and mbarriers to all
  if (threadIdx.x >= kConsumers) {
    dev::GiveRegisters<80>();
    Produce(p, s.attend, keys);
    return;
  }
  dev::TakeRegisters<208>();
  float sum[128];
  Running run;
  Attend(
      s.attend, keys.count, p.scale * kLog2E, [](int, int) {}, &run, sum);
  float total[2];
  JoinSums(s.attend, run, total);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head = head0 + HeadOf(h);
    if (head >= p.heads) continue;
    const float all = total[h] + dev::Exp2(p.sink[head] * kLog2E - run.top[h]);
    WriteHead(p.out + (static_cast<int64_t>(row) * p.heads + head) * kWidth, sum, h, 1.0f / all);
  }
}

}  // namespace

void SparseAttention(const Queue& queue, const SparseAttentionArgs& args) {
  WEIR_CHECK(args.width == kWidth && args.ring.format == RowFormat::kFp8Block32);
  WEIR_CHECK(args.select == 0 || args.entries.format == RowFormat::kFp4Block16);
  WEIR_CHECK(args.ring.row_bytes % 16 == 0 && args.ring.state_bytes % 16 == 0);
  WEIR_CHECK(args.entries.row_bytes % 8 == 0 && args.entries.page_bytes % 8 == 0);
  if (args.rows->count == 0) return;
  SparseParams p = {};
  p.rows = ViewOf(*args.rows);
  p.visible_from = As<const int32_t>(args.rows->visible_from);
  p.fresh_from = As<const int32_t>(args.rows->fresh_from);
  p.q = As<const float>(args.q);
  p.fresh = As<const unsigned char>(args.fresh);
  p.ring = reinterpret_cast<const unsigned char*>(args.ring.base +
                                                  static_cast<uintptr_t>(args.ring.layer_offset));
  p.state = As<const int32_t>(args.ring.state);
  p.state_bytes = args.ring.state_bytes;
  p.ring_row_bytes = args.ring.row_bytes;
  p.ring_rows = args.ring.ring_rows;
  p.entries = ViewOf(args.entries);
  p.selected = As<const int32_t>(args.selected);
  p.sink = As<const float>(args.sink);
  p.out = As<float>(args.out);
  p.heads = args.heads;
  p.window = args.window;
  p.select = args.select;
  p.scale = args.scale;
  Launch(queue,
         dim3(static_cast<unsigned>((args.heads + kHeads - 1) / kHeads),
              static_cast<unsigned>(args.rows->count)),
         dim3(kThreads), sizeof(SparseShared), SparseAttentionKernel, p);
}

}  // namespace weir::kernels::cuda
