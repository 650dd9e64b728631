// SPDX-License-Identifier: Apache-2.0
//
// The instructions of Hopper that CUDA C++ has no names for, as kernels/simt/device.h emulates them
// under the same names; here as PTX (manual 9.0). Only nvcc reads this, through device.cuh. Each
// does what the manual says of its instruction, and can go wrong as it says there.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>

namespace weir::kernels::dev {

constexpr uint32_t kAllLanes = ~0u;

template <class T>
__device__ __forceinline__ T& SharedMemory() {
  extern __shared__ __align__(1024) unsigned char weir_shared[];
  return *reinterpret_cast<T*>(weir_shared);
}
__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x % 32); }

// ---- numbers
__device__ __forceinline__ float Bf16ToFloat(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ float E4m3ToFloat(uint8_t code) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(code)));
  float value;
  asm("{.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;}"
      : "=f"(value)
      : "r"(halves));
  return value;
}
__device__ __forceinline__ uint8_t FloatToE4m3(float value) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(0.0f), "f"(value));
  return static_cast<uint8_t>(codes);
}
__device__ __forceinline__ float BitsToFloat(uint32_t bits) { return __uint_as_float(bits); }
__device__ __forceinline__ uint32_t FloatToBits(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- vectors
template <class T>
__device__ __forceinline__ T Load(const T* p) {
  return *p;
}
template <class T>
__device__ __forceinline__ void Store(T* p, const T& value) {
  *p = value;
}

// ---- tensor maps
enum class Swizzle : uint8_t { kNone = 0, k32 = 1, k64 = 2, k128 = 3 };

struct TensorMap {
  CUtensorMap map;
};

// Of 2-byte elements; innermost first, strides in bytes.
template <int kRank>
TensorMap MakeTensorMap(void* base, int element_bytes, Swizzle swizzle,
                        const uint64_t (&extent)[kRank], const uint64_t (&stride)[kRank],
                        const uint32_t (&box)[kRank]) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                     &answer);
    return reinterpret_cast<Encode>(found);
  }();
  uint32_t step[kRank];
  for (uint32_t& s : step) s = 1;
  TensorMap made;
  const CUresult result =
      encode(&made.map,
             element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
             kRank, base, extent, stride + 1, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             static_cast<CUtensorMapSwizzle>(swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) std::abort();  // shapes are ours
  return made;
}

__device__ __forceinline__ void BulkLoad(void* to, const void* from, uint32_t bytes,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

__device__ __forceinline__ void TensorLoad(void* to, const TensorMap& map, const int (&element)[3],
                                           uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(element[0]), "r"(element[1]), "r"(element[2]), "r"(SharedAddress(barrier))
      : "memory");
}

__device__ __forceinline__ void FenceProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- registers: a warpgroup hands some back, or takes what others handed back
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- barriers
__device__ __forceinline__ void MbarrierInit(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(b)), "r"(arrivals)
               : "memory");
}
__device__ __forceinline__ void MbarrierArrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(b)) : "memory");
}
__device__ __forceinline__ void MbarrierExpect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(b)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void MbarrierWait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(SharedAddress(b)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void BarrierSync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- tensor cores
enum class Operand : uint8_t { kBf16, kF16, kE4m3 };
enum class Major : uint8_t { kK, kOuter };

__device__ __forceinline__ void LoadMatrix(uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(SharedAddress(row))
               : "memory");
}

template <Operand kOperand>
__device__ __forceinline__ void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  static_assert(kOperand == Operand::kBf16, "no other operand is in use");
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint64_t MatrixDescriptor(const void* start, Swizzle swizzle,
                                                     uint32_t leading, uint32_t stride) {
  const uint64_t kind = swizzle == Swizzle::kNone ? 0 : 4 - static_cast<uint64_t>(swizzle);
  return (SharedAddress(start) & 0x3ffff) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | kind << 62;
}

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kGroups>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

#define WEIR_REGISTERS_4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define WEIR_REGISTERS_16(i) \
  WEIR_REGISTERS_4(i), WEIR_REGISTERS_4(i + 4), WEIR_REGISTERS_4(i + 8), WEIR_REGISTERS_4(i + 12)
#define WEIR_REGISTERS_64(i)                                                  \
  WEIR_REGISTERS_16(i), WEIR_REGISTERS_16(i + 16), WEIR_REGISTERS_16(i + 32), \
      WEIR_REGISTERS_16(i + 48)

template <bool kOuterA, bool kOuterB>
__device__ __forceinline__ void WgmmaBf16(float (&c)[16], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, %16, %17, p, 1, 1, %19, %20;\n}"
      : WEIR_REGISTERS_16(0)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kOuterA ? 1 : 0), "n"(kOuterB ? 1 : 0));
}

template <bool kOuterA, bool kOuterB>
__device__ __forceinline__ void WgmmaBf16(float (&c)[128], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127"
      "}, %128, %129, p, 1, 1, %131, %132;\n}"
      : WEIR_REGISTERS_64(0), WEIR_REGISTERS_64(64)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kOuterA ? 1 : 0), "n"(kOuterB ? 1 : 0));
}

// A from registers.
__device__ __forceinline__ void WgmmaBf16(float (&c)[8], const uint32_t (&a)[4], uint64_t b,
                                          int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7"
      "}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}"
      : WEIR_REGISTERS_4(0), WEIR_REGISTERS_4(4)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

__device__ __forceinline__ void WgmmaBf16(float (&c)[32], const uint32_t (&a)[4], uint64_t b,
                                          int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
      : WEIR_REGISTERS_16(0), WEIR_REGISTERS_16(16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

#undef WEIR_REGISTERS_4
#undef WEIR_REGISTERS_16
#undef WEIR_REGISTERS_64

template <Operand kOperand, int kN, Major kA = Major::kK, Major kB = Major::kK>
__device__ __forceinline__ void Wgmma(float (&c)[kN / 2], uint64_t a, uint64_t b, bool accumulate) {
  static_assert(kOperand == Operand::kBf16, "no other operand is in use");
  WgmmaBf16<kA == Major::kOuter, kB == Major::kOuter>(c, a, b, accumulate ? 1 : 0);
}
template <Operand kOperand, int kN>
__device__ __forceinline__ void Wgmma(float (&c)[kN / 2], const uint32_t (&a)[4], uint64_t b,
                                      bool accumulate) {
  static_assert(kOperand == Operand::kBf16, "no other operand is in use");
  WgmmaBf16(c, a, b, accumulate ? 1 : 0);
}

}  // namespace weir::kernels::dev
