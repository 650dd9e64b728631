// SPDX-License-Identifier: Apache-2.0
//
// Rotation of queries, and the finished KV row: norm of the latent, rotation of the key part, write
// to the row's page, in one pass. A block a row.
#include "base/stdx/check.h"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rotate.cuh"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRopeMax = 128;
constexpr int kLatentMax = 1024;

struct RopeShared {
  float2 turn[kRopeMax / 2];  // cosine and sine
};

__global__ void __launch_bounds__(kThreads)
    RopeQueryKernel(const int32_t* position, const float* frequency, float* q, int heads, int nope,
                    int rope, bool inverse) {
  auto& s = dev::SharedMemory<RopeShared>();
  const int64_t row = blockIdx.x;
  const int pairs = rope / 2;
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kThreads) {
    const Turn turn = TurnOf(position[row], frequency[i]);
    const auto sine = static_cast<float>(turn.sine);
    dev::Store(&s.turn[i], make_float2(static_cast<float>(turn.cosine), inverse ? -sine : sine));
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < heads * pairs; i += kThreads) {
    const int64_t head = row * heads + i / pairs;
    auto* pair = reinterpret_cast<float2*>(q + head * (nope + rope) + nope) + i % pairs;
    const float2 x = dev::Load(pair);
    const float2 turn = dev::Load(&s.turn[i % pairs]);
    dev::Store(pair, make_float2(x.x * turn.x - x.y * turn.y, x.x * turn.y + x.y * turn.x));
  }
}

struct KvShared {
  float partial[32];
};

// Two neighbours of the row.
__device__ __forceinline__ void StorePair(unsigned char* row, bool bf16, int index, float2 pair) {
  if (bf16) {
    dev::Store(reinterpret_cast<uint32_t*>(row) + index / 2, dev::PackBf16(pair.x, pair.y));
  } else {
    dev::Store(reinterpret_cast<float2*>(row) + index / 2, pair);
  }
}

__global__ void __launch_bounds__(kThreads)
    MlaKvWriteKernel(const RowsView rows, const PagedView kv, const float* kv_a,
                     const float* weight, const float* frequency, int latent, int rope, float eps,
                     bool bf16) {
  auto& s = dev::SharedMemory<KvShared>();
  const int64_t r = blockIdx.x;
  const int position = rows.position[r];
  if (position < rows.write_floor[r]) return;
  const float* x = kv_a + r * (latent + rope);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x) * 2; i < latent; i += kThreads * 2) {
    const float2 pair = dev::Load(reinterpret_cast<const float2*>(x + i));
    sum += pair.x * pair.x + pair.y * pair.y;
  }
  const float inverse = 1.0f / sqrtf(BlockSum(sum, s.partial) / static_cast<float>(latent) + eps);
  unsigned char* row = RowAt(kv, rows.sequence[r], position);
  for (int i = static_cast<int>(threadIdx.x) * 2; i < latent + rope; i += kThreads * 2) {
    const float2 pair = dev::Load(reinterpret_cast<const float2*>(x + i));
    if (i < latent) {
      const float2 w = dev::Load(reinterpret_cast<const float2*>(weight + i));
      StorePair(row, bf16, i, make_float2(pair.x * inverse * w.x, pair.y * inverse * w.y));
    } else {
      const Turn turn = TurnOf(position, frequency[(i - latent) / 2]);
      const auto cosine = static_cast<float>(turn.cosine);
      const auto sine = static_cast<float>(turn.sine);
      StorePair(row, bf16, i,
                make_float2(pair.x * cosine - pair.y * sine, pair.x * sine + pair.y * cosine));
    }
  }
}

}  // namespace

void RopeQuery(const Queue& queue, const RopeQueryArgs& args) {
  WEIR_CHECK(args.rope % 2 == 0 && args.rope <= kRopeMax && args.nope % 2 == 0);
  if (args.rows->count == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(args.rows->count)), dim3(kThreads), sizeof(RopeShared),
         RopeQueryKernel, As<const int32_t>(args.rows->position), As<const float>(args.frequency),
         As<float>(args.q), args.heads, args.nope, args.rope, args.inverse);
}

void MlaKvWrite(const Queue& queue, const MlaKvWriteArgs& args) {
  const bool bf16 = args.kv.format == RowFormat::kBf16;
  WEIR_CHECK(bf16 || args.kv.format == RowFormat::kF32);
  WEIR_CHECK(args.latent % 2 == 0 && args.latent <= kLatentMax && args.rope % 2 == 0);
  if (args.rows->count == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(args.rows->count)), dim3(kThreads), sizeof(KvShared),
         MlaKvWriteKernel, ViewOf(*args.rows), ViewOf(args.kv), As<const float>(args.kv_a),
         As<const float>(args.norm_weight), As<const float>(args.frequency), args.latent, args.rope,
         args.eps, bf16);
}

}  // namespace weir::kernels::cuda
