// SPDX-License-Identifier: Apache-2.0
//
// Residual streams: their mixing weights with Sinkhorn's iteration, the collapse before a sublayer
// and the expansion after it, and the gate of Engram. Products of a row are read once; a block a
// row or a row's stream, and for what has no sum over the row a thread for four neighbours.
#include <cmath>

#include "base/stdx/check.h"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kStreams = 4;
constexpr int kMixes = kStreams * kStreams;
constexpr int kValues = 2 * kStreams + kMixes;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ __forceinline__ float4 Scaled(float by, const float4& x, const float4& to) {
  return make_float4(to.x + by * x.x, to.y + by * x.y, to.z + by * x.z, to.w + by * x.w);
}
__device__ __forceinline__ float Dot4(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w);
}

struct MixShared {
  double part[kWarps][kValues + 1];  // products, and the sum of squares
};

struct MixParams {
  const float* x;
  const float* fn;
  const float* scale;
  const float* base;
  float* pre;
  float* post;
  float* comb;
  int width;  // of all streams
  int iterations;
  float eps;
  float norm_eps;
};

__device__ __forceinline__ double Sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// Over lanes whose number differs in these bits: 1 and 2 along a row of the mix, 4 and 8 a column.
__device__ __forceinline__ double SumAlong(double value, int bits) {
  value += __shfl_xor_sync(dev::kAllLanes, value, bits);
  return value + __shfl_xor_sync(dev::kAllLanes, value, bits * 2);
}

// Lane j * 4 + k of the lower half has source j, destination k; the upper half repeats it.
__device__ __forceinline__ double Sinkhorn(double value, int iterations, double eps) {
  double top = fmax(value, __shfl_xor_sync(dev::kAllLanes, value, 1));
  top = fmax(top, __shfl_xor_sync(dev::kAllLanes, top, 2));
  double c = exp(value - top);
  c = c / SumAlong(c, 1) + eps;
  c /= SumAlong(c, 4) + eps;
  for (int i = 1; i < iterations; ++i) {
    c /= SumAlong(c, 1) + eps;
    c /= SumAlong(c, 4) + eps;
  }
  return c;
}

__global__ void __launch_bounds__(kThreads) StreamMixKernel(const MixParams p) {
  auto& s = dev::SharedMemory<MixShared>();
  const int64_t row = blockIdx.x;
  const auto* x = reinterpret_cast<const float4*>(p.x + row * p.width);
  float sum[kValues + 1];
#pragma unroll
  for (int v = 0; v <= kValues; ++v) sum[v] = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.width / 4; i += kThreads) {
    const float4 mine = dev::Load(x + i);
    sum[kValues] += Dot4(mine, mine);
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      const float* fn = p.fn + static_cast<int64_t>(v) * p.width;
      sum[v] += Dot4(mine, dev::Load(reinterpret_cast<const float4*>(fn) + i));
    }
  }
#pragma unroll
  for (int v = 0; v <= kValues; ++v) {
    const double of_warp = WarpSum(static_cast<double>(sum[v]));
    if (dev::Lane() == 0) s.part[threadIdx.x / 32][v] = of_warp;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const int lane = dev::Lane();
  const auto total = [&](int v) {
    double all = 0;
    for (int w = 0; w < kWarps; ++w) all += s.part[w][v];
    return all;
  };
  const double inverse = 1.0 / sqrt(total(kValues) / p.width + p.norm_eps);
  const auto value = [&](int v) {
    const double scale = p.scale[min(v / kStreams, 2)];
    return total(v) * inverse * scale + p.base[v];
  };
  const double mix = Sinkhorn(value(2 * kStreams + lane % kMixes), p.iterations, p.eps);
  if (lane < kMixes) p.comb[row * kMixes + lane] = static_cast<float>(mix);
  if (lane < kStreams) {
    p.pre[row * kStreams + lane] = static_cast<float>(Sigmoid(value(lane)) + p.eps);
    p.post[row * kStreams + lane] = static_cast<float>(2 * Sigmoid(value(kStreams + lane)));
  }
}

__global__ void __launch_bounds__(kThreads)
    CollapseKernel(const float* x, const float* pre, float* out, int vectors) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= vectors) return;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    const auto* from = reinterpret_cast<const float4*>(x) + (row * kStreams + k) * vectors;
    sum = Scaled(pre[row * kStreams + k], dev::Load(from + i), sum);
  }
  dev::Store(reinterpret_cast<float4*>(out) + row * vectors + i, sum);
}

__global__ void __launch_bounds__(kThreads)
    ExpandKernel(const float* y, const float* post, const float* comb, float* x, int vectors) {
  const int64_t row = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= vectors) return;
  auto* streams = reinterpret_cast<float4*>(x) + row * kStreams * vectors + i;
  const float4 added = dev::Load(reinterpret_cast<const float4*>(y) + row * vectors + i);
  float4 old[kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j)
    old[j] = dev::Load(streams + static_cast<int64_t>(j) * vectors);
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    float4 sum = Scaled(post[row * kStreams + k], added, make_float4(0, 0, 0, 0));
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      sum = Scaled(comb[row * kMixes + j * kStreams + k], old[j], sum);
    }
    dev::Store(streams + static_cast<int64_t>(k) * vectors, sum);
  }
}

struct GateShared {
  float dot[kWarps];
  float x[kWarps];
  float key[kWarps];
};

// A block a row's stream.
__global__ void __launch_bounds__(kThreads)
    EngramGateKernel(const int32_t* image, const float* kv, const float* q_weight,
                     const float* k_weight, float* x, int width, float eps) {
  auto& s = dev::SharedMemory<GateShared>();
  const int stream = static_cast<int>(blockIdx.x);
  const int64_t row = blockIdx.y;
  if (image != nullptr && image[row] != 0) return;
  const int vectors = width / 4;
  const auto* keys = reinterpret_cast<const float4*>(kv) + row * (kStreams + 1) * vectors;
  const auto* key = keys + static_cast<int64_t>(stream) * vectors;
  const auto* value = keys + static_cast<int64_t>(kStreams) * vectors;
  const auto* q =
      reinterpret_cast<const float4*>(q_weight) + static_cast<int64_t>(stream) * vectors;
  const auto* w =
      reinterpret_cast<const float4*>(k_weight) + static_cast<int64_t>(stream) * vectors;
  auto* mine = reinterpret_cast<float4*>(x) + (row * kStreams + stream) * vectors;
  float dot = 0;
  float xx = 0;
  float kk = 0;
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
    const float4 a = dev::Load(mine + i);
    const float4 b = dev::Load(key + i);
    const float4 c = dev::Load(q + i);
    const float4 d = dev::Load(w + i);
    dot += Dot4(make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w),
                make_float4(c.x * d.x, c.y * d.y, c.z * d.z, c.w * d.w));
    xx += Dot4(a, a);
    kk += Dot4(b, b);
  }
  dot = BlockSum(dot, s.dot);
  const float mean_x = BlockSum(xx, s.x) / static_cast<float>(width) + eps;
  const float mean_key = BlockSum(kk, s.key) / static_cast<float>(width) + eps;
  dot /= sqrtf(mean_x) * sqrtf(mean_key) * sqrtf(static_cast<float>(width));
  const float root = copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot);
  const float gate = 1.0f / (1.0f + expf(-root));
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
    dev::Store(mine + i, Scaled(gate, dev::Load(value + i), dev::Load(mine + i)));
  }
}

unsigned BlocksOf(int vectors) {
  return static_cast<unsigned>((vectors + kThreads - 1) / kThreads);
}

}  // namespace

void StreamMix(const Queue& queue, const StreamMixArgs& args) {
  WEIR_CHECK(args.streams == kStreams && args.fn.rows == kValues && args.fn.cols % 4 == 0);
  WEIR_CHECK(args.fn.dtype == DType::kF32);
  if (args.rows == 0) return;
  const MixParams p = {As<const float>(args.x),
                       As<const float>({args.fn.address, DType::kF32, {}}),
                       As<const float>(args.scale),
                       As<const float>(args.base),
                       As<float>(args.pre),
                       As<float>(args.post),
                       As<float>(args.comb),
                       static_cast<int>(args.fn.cols),
                       args.iterations,
                       args.eps,
                       args.norm_eps};
  Launch(queue, dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(MixShared),
         StreamMixKernel, p);
}

void Collapse(const Queue& queue, const CollapseArgs& args) {
  WEIR_CHECK(args.streams == kStreams && args.width % 4 == 0);
  if (args.rows == 0) return;
  Launch(queue, dim3(BlocksOf(args.width / 4), static_cast<unsigned>(args.rows)), dim3(kThreads), 0,
         CollapseKernel, As<const float>(args.x), As<const float>(args.pre), As<float>(args.out),
         args.width / 4);
}

void Expand(const Queue& queue, const ExpandArgs& args) {
  WEIR_CHECK(args.streams == kStreams && args.width % 4 == 0);
  if (args.rows == 0) return;
  Launch(queue, dim3(BlocksOf(args.width / 4), static_cast<unsigned>(args.rows)), dim3(kThreads), 0,
         ExpandKernel, As<const float>(args.y), As<const float>(args.post),
         As<const float>(args.comb), As<float>(args.x), args.width / 4);
}

void EngramGate(const Queue& queue, const EngramGateArgs& args) {
  WEIR_CHECK(args.streams == kStreams && args.width % 4 == 0);
  if (args.rows->count == 0) return;
  Launch(queue, dim3(kStreams, static_cast<unsigned>(args.rows->count)), dim3(kThreads),
         sizeof(GateShared), EngramGateKernel, As<const int32_t>(args.rows->image),
         As<const float>(args.kv), As<const float>(args.q_weight), As<const float>(args.k_weight),
         As<float>(args.x), args.width, args.eps);
}

}  // namespace weir::kernels::cuda
