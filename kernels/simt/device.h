// SPDX-License-Identifier: Apache-2.0
//
// CUDA for the host's compiler: under weir::kernels::dev the instructions that CUDA C++ has no
// names for, and through builtins.h those it has. kernels/cuda has the same functions for nvcc.
// Include it from kernels only: it defines macros like threadIdx. A kernel keeps its shared memory
// in one struct, taken by SharedMemory<T>().
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/simt/builtins.h"
#include "kernels/simt/numbers.h"
#include "kernels/simt/runtime.h"

namespace weir::kernels::dev {

namespace simt = ::weir::kernels::simt;
using simt::MakeTensorMap;
using simt::Operand;
using simt::Site;
using simt::Swizzle;
using simt::TensorMap;

constexpr uint32_t kAllLanes = ~0u;

template <class T>
T& SharedMemory() {
  return *reinterpret_cast<T*>(simt::g_thread->shared);
}
inline uint32_t SharedAddress(const void* p) { return simt::SharedAddress(p); }
inline int Lane() { return simt::g_thread->lane; }

// ---- numbers
inline float Bf16ToFloat(uint16_t bits) { return simt::FromBf16(bits); }
inline uint16_t FloatToBf16(float value) { return simt::ToBf16(value); }
// Two values in a register, `low` in its low half.
inline uint32_t PackBf16(float low, float high) {
  return FloatToBf16(low) | static_cast<uint32_t>(FloatToBf16(high)) << 16;
}
inline float F16ToFloat(uint16_t bits) { return simt::FromF16(bits); }
inline uint16_t FloatToF16(float value) { return simt::ToF16(value); }
inline float E4m3ToFloat(uint8_t code) { return simt::FromE4m3(code); }
inline uint8_t FloatToE4m3(float value) { return simt::ToE4m3(value); }
inline float BitsToFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t FloatToBits(float value) { return std::bit_cast<uint32_t>(value); }
inline float Exp2(float x) { return exp2f(x); }

// ---- vectors: a load or store of up to 16 bytes that must stay one
template <class T>
T Load(const T* p, WEIR_SITE) {
  T value;
  simt::ReadVector(&value, p, sizeof(T), at);
  return value;
}
template <class T>
void Store(T* p, const T& value, WEIR_SITE) {
  simt::WriteVector(p, &value, sizeof(T), at);
}

// ---- asynchronous copies
template <int kRoom = 16>
void CopyAsync(void* to, const void* from, int bytes = kRoom, WEIR_SITE) {
  simt::CopyAsync(to, from, kRoom, bytes, at);
}
inline void CopyCommit() { simt::CopyCommit(); }
template <int kGroups>
void CopyWait(WEIR_SITE) {
  simt::CopyWait(kGroups, at);
}
inline void CopyArrive(uint64_t* barrier, WEIR_SITE) { simt::CopyArrive(barrier, at); }
inline void BulkLoad(void* to, const void* from, uint32_t bytes, uint64_t* barrier, WEIR_SITE) {
  simt::BulkLoad(to, from, bytes, barrier, at);
}
inline void BulkStore(void* to, const void* from, uint32_t bytes, WEIR_SITE) {
  simt::BulkStore(to, from, bytes, at);
}
template <int kRank>
void TensorLoad(void* to, const TensorMap& map, const int (&element)[kRank], uint64_t* barrier,
                WEIR_SITE) {
  simt::TensorLoad(to, &map, element, barrier, at);
}
template <int kRank>
void TensorStore(const TensorMap& map, const int (&element)[kRank], const void* from, WEIR_SITE) {
  simt::TensorStore(&map, element, from, at);
}
inline void StoreCommit() { simt::StoreCommit(); }
template <int kGroups>
void StoreWait(WEIR_SITE) {
  simt::StoreWait(kGroups, at);
}
inline void FenceProxy(WEIR_SITE) { simt::FenceProxy(at); }

// ---- registers: a warpgroup hands some back, or takes what others handed back
template <int kRegisters>
void GiveRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

// ---- barriers
inline void MbarrierInit(uint64_t* b, int arrivals, WEIR_SITE) {
  simt::MbarrierInit(b, arrivals, at);
}
inline void MbarrierFence(WEIR_SITE) { simt::MbarrierFence(at); }
inline void MbarrierArrive(uint64_t* b, WEIR_SITE) { simt::MbarrierArrive(b, 0, at); }
inline void MbarrierExpect(uint64_t* b, uint32_t bytes, WEIR_SITE) {
  simt::MbarrierArrive(b, bytes, at);
}
inline void MbarrierWait(uint64_t* b, uint32_t parity, WEIR_SITE) {
  simt::MbarrierWait(b, parity, at);
}
inline void BarrierSync(int id, int threads, WEIR_SITE) { simt::BarrierSync(id, threads, at); }
inline void BarrierArrive(int id, int threads, WEIR_SITE) { simt::BarrierArrive(id, threads, at); }

// ---- tensor cores
template <int kTiles>
void LoadMatrix(uint32_t (&registers)[kTiles], const void* row, WEIR_SITE) {
  simt::MatrixLane lane{const_cast<void*>(row), registers, kTiles, false};
  simt::Meet(simt::Collective::kLoadMatrix, kAllLanes, &lane, at);
}
template <int kTiles>
void LoadMatrixTransposed(uint32_t (&registers)[kTiles], const void* row, WEIR_SITE) {
  simt::MatrixLane lane{const_cast<void*>(row), registers, kTiles, true};
  simt::Meet(simt::Collective::kLoadMatrix, kAllLanes, &lane, at);
}
template <int kTiles>
void StoreMatrix(void* row, const uint32_t (&registers)[kTiles], WEIR_SITE) {
  simt::MatrixLane lane{row, const_cast<uint32_t*>(registers), kTiles, false};
  simt::Meet(simt::Collective::kStoreMatrix, kAllLanes, &lane, at);
}
template <int kTiles>
void StoreMatrixTransposed(void* row, const uint32_t (&registers)[kTiles], WEIR_SITE) {
  simt::MatrixLane lane{row, const_cast<uint32_t*>(registers), kTiles, true};
  simt::Meet(simt::Collective::kStoreMatrix, kAllLanes, &lane, at);
}

// c += a b, m16n8 by k16 of 16-bit or k32 of 8-bit operands.
template <Operand kOperand>
void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, WEIR_SITE) {
  const uint32_t b[2] = {b0, b1};
  simt::MmaLane lane{kOperand, a, b, c};
  simt::Meet(simt::Collective::kMma, kAllLanes, &lane, at);
}

inline void WgmmaFence(WEIR_SITE) {
  simt::Meet(simt::Collective::kWgmmaFence, kAllLanes, nullptr, at);
}
inline void WgmmaCommit(WEIR_SITE) {
  simt::Meet(simt::Collective::kWgmmaCommit, kAllLanes, nullptr, at);
}
template <int kGroups>
void WgmmaWait(WEIR_SITE) {
  simt::WaitLane lane{kGroups};
  simt::Meet(simt::Collective::kWgmmaWait, kAllLanes, &lane, at);
}

// Of an operand in shared memory (PTX manual, "Matrix-descriptor format"). Along K, `stride` is the
// distance of groups of eight rows; along M or N, that of groups of eight K, and `leading` that of
// blocks as wide as the swizzle.
inline uint64_t MatrixDescriptor(const void* start, Swizzle swizzle, uint32_t leading,
                                 uint32_t stride) {
  const uint64_t kind = swizzle == Swizzle::kNone ? 0 : 4 - static_cast<uint64_t>(swizzle);
  return (SharedAddress(start) & 0x3ffff) >> 4 | uint64_t{leading >> 4} << 16 |
         uint64_t{stride >> 4} << 32 | kind << 62;
}

// How an operand lies in shared memory: along K, or along M or N (16-bit operands alone).
enum class Major : uint8_t { kK, kOuter };

// c (+)= a b of m64 by kN; both from shared memory, or a from registers.
template <Operand kOperand, int kN, Major kA = Major::kK, Major kB = Major::kK>
void Wgmma(float (&c)[kN / 2], uint64_t a, uint64_t b, bool accumulate, WEIR_SITE) {
  simt::WgmmaLane lane{{kN, kOperand, false, kA == Major::kOuter, kB == Major::kOuter},
                       a,
                       b,
                       nullptr,
                       accumulate,
                       c};
  simt::Meet(simt::Collective::kWgmma, kAllLanes, &lane, at);
}
template <Operand kOperand, int kN, Major kB = Major::kK>
void Wgmma(float (&c)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate, WEIR_SITE) {
  simt::WgmmaLane lane{{kN, kOperand, true, false, kB == Major::kOuter}, 0, b, a, accumulate, c};
  simt::Meet(simt::Collective::kWgmma, kAllLanes, &lane, at);
}

// ---- memory order
template <class T>
T LoadAcquire(const T* p, WEIR_SITE) {
  return simt::Narrow<T>(simt::AtomicLoad(p, sizeof(T), simt::Order::kAcquire, at));
}
template <class T>
void StoreRelease(T* p, T value, WEIR_SITE) {
  simt::AtomicStore(p, sizeof(T), simt::Widen(value), simt::Order::kRelease, at);
}
template <class T>
T AddReleaseAcquire(T* p, T value, WEIR_SITE) {
  return simt::Update<T, simt::Add>(p, value, at, simt::Order::kAcquireRelease);
}

}  // namespace weir::kernels::dev
