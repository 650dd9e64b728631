// SPDX-License-Identifier: Apache-2.0
//
// How reference kernels reach memory and numbers: addresses become pointers here and nowhere else
// outside a kernel. KernelScope brackets a kernel, so that in guarded mode memory is readable only
// inside one. Used on the stream's thread.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/op/backend.h"
#include "kernels/op/rows.h"
#include "kernels/op/tensor.h"

namespace weir::kernels::ref {

class KernelScope {
 public:
  explicit KernelScope(Stream& stream) : stream_(stream) { stream_.BeginKernel(); }
  ~KernelScope() { stream_.EndKernel(); }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  Stream& stream_;
};

template <class T>
T* As(DeviceAddress address) {
  return reinterpret_cast<T*>(address);
}
inline float* F32(const Tensor& tensor) { return As<float>(tensor.address); }
inline int32_t* I32(const Tensor& tensor) { return As<int32_t>(tensor.address); }

inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest even. NaN stays NaN.
inline uint16_t FloatToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// float8 e4m3fn: no infinities, 0x7f and 0xff are NaN.
float F8E4m3ToFloat(uint8_t code);

// The place of `position` of the sequence in table row `sequence`.
inline DeviceAddress KvRow(const PagedKv& kv, int32_t sequence, int32_t position) {
  const int32_t* table = I32(kv.table) + static_cast<int64_t>(sequence) * kv.table_stride;
  const int64_t page = table[position / kv.page_tokens];
  return kv.base + static_cast<uintptr_t>(page * kv.page_bytes + kv.layer_offset +
                                          (position % kv.page_tokens) * kv.row_bytes);
}

// Dot product over eight fixed lanes: the order of the additions depends on `n` alone, and the
// lanes let the compiler use vector registers without reordering anything.
template <class A, class B>
double Dot(const A* a, const B* b, int n) {
  double lane[8] = {};
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int k = 0; k < 8; ++k)
      lane[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
  }
  for (int k = 0; i < n; ++i, ++k) lane[k] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

}  // namespace weir::kernels::ref
