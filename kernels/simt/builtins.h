// SPDX-License-Identifier: Apache-2.0
//
// What CUDA C++ knows under its own names, for the host's compiler: thread indices, __syncthreads,
// shuffles and votes, atomics. Only kernels include it, through device.h: it defines macros like
// threadIdx and names in the global namespace. Each call goes to the emulator with its line.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/simt/device_types.h"
#include "kernels/simt/runtime.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::weir::kernels::simt::g_thread->thread_index)
#define blockIdx (::weir::kernels::simt::g_thread->block_index)
#define blockDim (::weir::kernels::simt::g_thread->block_size)
#define gridDim (::weir::kernels::simt::g_thread->grid_size)
// The defaulted last argument that tells the emulator where a kernel stands.
#define WEIR_SITE ::weir::kernels::simt::Site at = ::weir::kernels::simt::Site::Here()

namespace weir::kernels::simt {

template <class T>
uint64_t Widen(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T Narrow(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
// `F` computes the new value from the old one and the operand.
template <class T, class F>
T Update(T* p, T operand, Site at, Order order = Order::kRelaxed) {
  return Narrow<T>(AtomicUpdate(
      p, sizeof(T),
      [](uint64_t old, const void* operand_at) {
        T given;
        std::memcpy(&given, operand_at, sizeof(T));
        return Widen<T>(F()(Narrow<T>(old), given));
      },
      &operand, order, at));
}
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Smallest {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Second {
  template <class T>
  T operator()(T, T b) const {
    return b;
  }
};

inline uint64_t VoteBy(Collective what, uint32_t mask, uint64_t value, int source, Site at) {
  VoteLane lane{value, source, 0};
  Meet(what, mask, &lane, at);
  return lane.result;
}
// The lane itself where `source` leaves its group of `width` lanes.
template <class T>
T ShuffleFrom(uint32_t mask, T value, int source, int width, Site at) {
  const int lane = g_thread->lane;
  const bool inside = (source & ~(width - 1)) == (lane & ~(width - 1));
  return Narrow<T>(VoteBy(Collective::kShuffle, mask, Widen(value), inside ? source : lane, at));
}

}  // namespace weir::kernels::simt

inline void __syncthreads(WEIR_SITE) { weir::kernels::simt::SyncThreads(at); }
inline void __syncwarp(uint32_t mask = ~0u, WEIR_SITE) {
  weir::kernels::simt::Meet(weir::kernels::simt::Collective::kSyncWarp, mask, nullptr, at);
}
inline void __threadfence(WEIR_SITE) { weir::kernels::simt::ThreadFence(at); }

template <class T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32, WEIR_SITE) {
  const int lane = weir::kernels::simt::g_thread->lane;
  return weir::kernels::simt::ShuffleFrom(
      mask, value, (lane & ~(width - 1)) | (source & (width - 1)), width, at);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32, WEIR_SITE) {
  return weir::kernels::simt::ShuffleFrom(mask, value, weir::kernels::simt::g_thread->lane ^ bits,
                                          width, at);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, int by, int width = 32, WEIR_SITE) {
  return weir::kernels::simt::ShuffleFrom(mask, value, weir::kernels::simt::g_thread->lane - by,
                                          width, at);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, int by, int width = 32, WEIR_SITE) {
  return weir::kernels::simt::ShuffleFrom(mask, value, weir::kernels::simt::g_thread->lane + by,
                                          width, at);
}
inline uint32_t __ballot_sync(uint32_t mask, bool vote, WEIR_SITE) {
  using weir::kernels::simt::Collective;
  return static_cast<uint32_t>(
      weir::kernels::simt::VoteBy(Collective::kBallot, mask, vote ? 1 : 0, 0, at));
}
inline bool __any_sync(uint32_t mask, bool vote, WEIR_SITE) {
  return __ballot_sync(mask, vote, at) != 0;
}
inline bool __all_sync(uint32_t mask, bool vote, WEIR_SITE) {
  return __ballot_sync(mask, vote, at) == mask;
}
template <class T>
uint32_t __match_any_sync(uint32_t mask, T value, WEIR_SITE) {
  using weir::kernels::simt::Collective;
  return static_cast<uint32_t>(weir::kernels::simt::VoteBy(
      Collective::kMatch, mask, weir::kernels::simt::Widen(value), 0, at));
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value, WEIR_SITE) {
  using weir::kernels::simt::Collective;
  return static_cast<uint32_t>(
      weir::kernels::simt::VoteBy(Collective::kReduceAdd, mask, value, 0, at));
}
inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t value, WEIR_SITE) {
  using weir::kernels::simt::Collective;
  return static_cast<uint32_t>(
      weir::kernels::simt::VoteBy(Collective::kReduceMin, mask, value, 0, at));
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value, WEIR_SITE) {
  using weir::kernels::simt::Collective;
  return static_cast<uint32_t>(
      weir::kernels::simt::VoteBy(Collective::kReduceMax, mask, value, 0, at));
}

template <class T>
T atomicAdd(T* p, T value, WEIR_SITE) {
  return weir::kernels::simt::Update<T, weir::kernels::simt::Add>(p, value, at);
}
template <class T>
T atomicMax(T* p, T value, WEIR_SITE) {
  return weir::kernels::simt::Update<T, weir::kernels::simt::Largest>(p, value, at);
}
template <class T>
T atomicMin(T* p, T value, WEIR_SITE) {
  return weir::kernels::simt::Update<T, weir::kernels::simt::Smallest>(p, value, at);
}
template <class T>
T atomicExch(T* p, T value, WEIR_SITE) {
  return weir::kernels::simt::Update<T, weir::kernels::simt::Second>(p, value, at);
}

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __ffs(uint32_t x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __clz(uint32_t x) { return x == 0 ? 32 : __builtin_clz(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
