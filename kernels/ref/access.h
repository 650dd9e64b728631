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

// The BF16 rounding points of `vendor` numerics (v41-spec 4); otherwise nothing but F32.
class Rounding {
 public:
  explicit Rounding(bool bf16) : bf16_(bf16) {}
  float operator()(double value) const {
    const auto narrow = static_cast<float>(value);
    return bf16_ ? Bf16ToFloat(FloatToBf16(narrow)) : narrow;
  }
  bool on() const { return bf16_; }

 private:
  bool bf16_;
};

// The place of `position` of the sequence in table row `sequence`.
inline DeviceAddress KvRow(const PagedKv& kv, int32_t sequence, int32_t position) {
  const int32_t* table = I32(kv.table) + static_cast<int64_t>(sequence) * kv.table_stride;
  const int64_t page = table[position / kv.page_tokens];
  return kv.base + static_cast<uintptr_t>(page * kv.page_bytes + kv.layer_offset +
                                          position % kv.page_tokens / kv.ratio * kv.row_bytes);
}

// Likewise in a ring.
inline DeviceAddress RingRow(const RingKv& ring, int32_t sequence, int32_t position) {
  const int64_t page = I32(ring.state)[sequence];
  return ring.base + static_cast<uintptr_t>(page * ring.state_bytes + ring.layer_offset +
                                            position % ring.ring_rows * ring.row_bytes);
}

// The row of position `at` of step row r's sequence: the step's own, or the ring's.
inline const std::byte* RecentRow(const StepRows& rows, const Tensor& fresh, const RingKv& ring,
                                  int64_t r, int32_t at) {
  const int32_t position = I32(rows.position)[r];
  if (at >= I32(rows.fresh_from)[r]) {
    return As<const std::byte>(fresh.address) + (r - (position - at)) * ring.row_bytes;
  }
  return As<const std::byte>(RingRow(ring, I32(rows.sequence)[r], at));
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
