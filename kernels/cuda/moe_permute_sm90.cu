// SPDX-License-Identifier: Apache-2.0
//
// Groups entries by physical slot, and sums the experts' answers. Every slot's block reads all
// entries, which are few, and so needs no word from the others and no atomics.
#include "base/stdx/check.h"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kChoicesMax = 64;

struct PermuteShared {
  int32_t before[kThreads + 1];  // entries of this slot in front of a thread's share
  int32_t lower[kThreads];       // of lower slots in a thread's share
};

__global__ void __launch_bounds__(kThreads)
    MoePermuteKernel(const int32_t* expert, const int32_t* slot_of, int32_t* entry,
                     int32_t* slot_begin, int entries, int slots) {
  auto& s = dev::SharedMemory<PermuteShared>();
  const int t = static_cast<int>(threadIdx.x);
  const int slot = static_cast<int>(blockIdx.x);
  const int share = (entries + kThreads - 1) / kThreads;
  const int first = min(t * share, entries);
  const int last = min(first + share, entries);
  int lower = 0;
  int mine = 0;
  for (int e = first; e < last; ++e) {
    const int its = slot_of[expert[e]];
    lower += its < slot ? 1 : 0;
    mine += its == slot ? 1 : 0;
  }
  s.lower[t] = lower;
  s.before[t + 1] = mine;
  if (t == 0) s.before[0] = 0;
  __syncthreads();
  int at = 0;
  for (int i = 0; i < kThreads; ++i) at += s.lower[i];
  if (t == 0) {
    slot_begin[slot] = at;
    if (slot == slots - 1) slot_begin[slots] = entries;
  }
  for (int i = 0; i <= t; ++i) at += s.before[i];
  for (int e = first; e < last; ++e) {
    if (slot_of[expert[e]] == slot) entry[at++] = e;
  }
}

struct CombineShared {
  int32_t order[kChoicesMax];  // choices in ascending logical expert
};

__global__ void __launch_bounds__(kThreads)
    MoeCombineKernel(const int32_t* expert, const float* weight, const float* out, float* sum,
                     int choices, int width) {
  auto& s = dev::SharedMemory<CombineShared>();
  const int64_t row = blockIdx.x;
  const int32_t* mine = expert + row * choices;
  for (int k = static_cast<int>(threadIdx.x); k < choices; k += kThreads) {
    int rank = 0;
    for (int i = 0; i < choices; ++i) {
      rank += mine[i] < mine[k] || (mine[i] == mine[k] && i < k) ? 1 : 0;
    }
    s.order[rank] = k;
  }
  __syncthreads();
  auto* to = reinterpret_cast<float4*>(sum + row * width);
  for (int i = static_cast<int>(threadIdx.x); i < width / 4; i += kThreads) {
    float4 total = make_float4(0, 0, 0, 0);
    for (int k = 0; k < choices; ++k) {
      const int64_t at = row * choices + s.order[k];
      const float by = weight == nullptr ? 1.0f : weight[at];
      const float4 x = dev::Load(reinterpret_cast<const float4*>(out + at * width) + i);
      total = make_float4(total.x + by * x.x, total.y + by * x.y, total.z + by * x.z,
                          total.w + by * x.w);
    }
    const float4 old = dev::Load(to + i);
    dev::Store(to + i,
               make_float4(old.x + total.x, old.y + total.y, old.z + total.z, old.w + total.w));
  }
}

}  // namespace

void MoePermute(const Queue& queue, const MoePermuteArgs& args) {
  if (args.slots == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(args.slots)), dim3(kThreads), sizeof(PermuteShared),
         MoePermuteKernel, As<const int32_t>(args.expert), As<const int32_t>(args.slot_of),
         As<int32_t>(args.entry), As<int32_t>(args.slot_begin), args.rows * args.choices,
         args.slots);
}

void MoeCombine(const Queue& queue, const MoeCombineArgs& args) {
  WEIR_CHECK(args.choices <= kChoicesMax && args.width % 4 == 0);
  if (args.rows == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(args.rows)), dim3(kThreads), sizeof(CombineShared),
         MoeCombineKernel, As<const int32_t>(args.expert), As<const float>(args.weight),
         As<const float>(args.out), As<float>(args.sum), args.choices, args.width);
}

}  // namespace weir::kernels::cuda
