// SPDX-License-Identifier: Apache-2.0
//
// RmsNorm: a block a row, 16 bytes a thread and step; the row is read once and kept in registers.
#include "base/stdx/check.h"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 8;  // of 4 values that a thread keeps: rows of at most 8192

struct NormShared {
  float partial[32];
};

__global__ void __launch_bounds__(kThreads)
    RmsNormKernel(const float* x, int x_stride, const float* weight, float* out, int width,
                  float eps) {
  auto& s = dev::SharedMemory<NormShared>();
  const int64_t row = blockIdx.x;
  const auto* from = reinterpret_cast<const float4*>(x + row * x_stride);
  auto* to = reinterpret_cast<float4*>(out + row * width);
  const auto* scale = reinterpret_cast<const float4*>(weight);
  const int vectors = width / 4;
  float4 kept[kVectors];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (at >= vectors) break;
    kept[i] = dev::Load(from + at);
    sum += kept[i].x * kept[i].x + kept[i].y * kept[i].y;
    sum += kept[i].z * kept[i].z + kept[i].w * kept[i].w;
  }
  const float inverse = 1.0f / sqrtf(BlockSum(sum, s.partial) / static_cast<float>(width) + eps);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (at >= vectors) break;
    const float4 w = dev::Load(scale + at);
    dev::Store(to + at, make_float4(kept[i].x * inverse * w.x, kept[i].y * inverse * w.y,
                                    kept[i].z * inverse * w.z, kept[i].w * inverse * w.w));
  }
}

__global__ void __launch_bounds__(kThreads) AddKernel(float* sum, const float* x, int64_t vectors) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= vectors) return;
  auto* to = reinterpret_cast<float4*>(sum) + at;
  const float4 a = dev::Load(to);
  const float4 b = dev::Load(reinterpret_cast<const float4*>(x) + at);
  dev::Store(to, make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w));
}

}  // namespace

void RmsNorm(const Queue& queue, const RmsNormArgs& args) {
  WEIR_CHECK(args.width % 4 == 0 && args.x_stride % 4 == 0);
  WEIR_CHECK(args.width <= kThreads * kVectors * 4);
  if (args.rows == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(NormShared),
         RmsNormKernel, As<const float>(args.x), args.x_stride, As<const float>(args.weight),
         As<float>(args.out), args.width, args.eps);
}

void Add(const Queue& queue, const AddArgs& args) {
  WEIR_CHECK(args.elements % 4 == 0);
  const int64_t vectors = args.elements / 4;
  if (vectors == 0) return;
  Launch(queue, dim3(static_cast<unsigned>((vectors + kThreads - 1) / kThreads)), dim3(kThreads), 0,
         AddKernel, As<float>(args.sum), As<const float>(args.x), vectors);
}

}  // namespace weir::kernels::cuda
