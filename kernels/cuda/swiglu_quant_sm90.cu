// SPDX-License-Identifier: Apache-2.0
//
// Swiglu in place, 16 bytes a thread; and for experts, weighted and rounded to the BF16 that the
// next product takes.
#include "base/stdx/check.h"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float Gated(float gate, float up, float limit) {
  if (limit > 0) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
  }
  return gate / (1.0f + expf(-gate)) * up;
}

__global__ void __launch_bounds__(kThreads)
    SwigluKernel(float* gate, const float* up, int64_t vectors, float limit) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= vectors) return;
  auto* to = reinterpret_cast<float4*>(gate) + at;
  const float4 g = dev::Load(to);
  const float4 u = dev::Load(reinterpret_cast<const float4*>(up) + at);
  dev::Store(to, make_float4(Gated(g.x, u.x, limit), Gated(g.y, u.y, limit), Gated(g.z, u.z, limit),
                             Gated(g.w, u.w, limit)));
}

// A block a place; `last` is where the slots end.
__global__ void __launch_bounds__(kThreads)
    ExpertSwigluKernel(const float* gate, const float* up, const int32_t* entry,
                       const int32_t* last, const float* weight, uint16_t* hidden, int width,
                       float limit) {
  const int64_t place = blockIdx.x;
  const bool there = place < *last;
  const float by = there && weight != nullptr ? weight[entry[place]] : 1.0f;
  for (int i = static_cast<int>(threadIdx.x); i < width / 4; i += kThreads) {
    uint2 packed = make_uint2(0, 0);
    if (there) {
      const float4 g = dev::Load(reinterpret_cast<const float4*>(gate + place * width) + i);
      const float4 u = dev::Load(reinterpret_cast<const float4*>(up + place * width) + i);
      packed = make_uint2(dev::PackBf16(Gated(g.x, u.x, limit) * by, Gated(g.y, u.y, limit) * by),
                          dev::PackBf16(Gated(g.z, u.z, limit) * by, Gated(g.w, u.w, limit) * by));
    }
    dev::Store(reinterpret_cast<uint2*>(hidden + place * width) + i, packed);
  }
}

}  // namespace

void ExpertSwiglu(const Queue& queue, const ExpertFfnArgs& args, const Tensor& gate,
                  const Tensor& up, int width, const Tensor& hidden) {
  Launch(queue, dim3(static_cast<unsigned>(args.entries_max)), dim3(kThreads), 0,
         ExpertSwigluKernel, As<const float>(gate), As<const float>(up),
         As<const int32_t>(args.entry), As<const int32_t>(args.slot_begin) + args.slots.size(),
         As<const float>(args.weight), As<uint16_t>(hidden), width, args.limit);
}

void Swiglu(const Queue& queue, const SwigluArgs& args) {
  WEIR_CHECK(args.elements % 4 == 0);
  const int64_t vectors = args.elements / 4;
  if (vectors == 0) return;
  Launch(queue, dim3(static_cast<unsigned>((vectors + kThreads - 1) / kThreads)), dim3(kThreads), 0,
         SwigluKernel, As<float>(args.gate), As<const float>(args.up), vectors, args.limit);
}

}  // namespace weir::kernels::cuda
