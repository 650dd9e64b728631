// SPDX-License-Identifier: Apache-2.0
//
// What kernels need of a step's rows and stores: plain pointers taken from the tensors of
// kernels/op on the host, and the place of a position in a paged store.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/op/rows.h"

namespace weir::kernels::cuda {

template <class T>
T* As(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.address);
}

struct RowsView {
  const int32_t* token;
  const int32_t* position;
  const int32_t* sequence;
  const int32_t* write_floor;
};

inline RowsView ViewOf(const StepRows& rows) {
  return {As<const int32_t>(rows.token), As<const int32_t>(rows.position),
          As<const int32_t>(rows.sequence), As<const int32_t>(rows.write_floor)};
}

struct PagedView {
  unsigned char* base;  // of this layer
  int64_t page_bytes;
  int64_t row_bytes;
  int32_t page_tokens;
  int32_t ratio;
  const int32_t* table;
  int32_t table_stride;
};

inline PagedView ViewOf(const PagedKv& kv) {
  return {reinterpret_cast<unsigned char*>(kv.base + static_cast<uintptr_t>(kv.layer_offset)),
          kv.page_bytes,
          kv.row_bytes,
          kv.page_tokens,
          kv.ratio,
          As<const int32_t>(kv.table),
          kv.table_stride};
}

__device__ __forceinline__ unsigned char* RowAt(const PagedView& kv, int sequence, int position) {
  const int64_t page =
      kv.table[static_cast<int64_t>(sequence) * kv.table_stride + position / kv.page_tokens];
  return kv.base + page * kv.page_bytes + position % kv.page_tokens / kv.ratio * kv.row_bytes;
}

struct RingView {
  unsigned char* base;  // of this layer
  int64_t state_bytes;
  int64_t row_bytes;
  int32_t ring_rows;
  const int32_t* state;
};

inline RingView ViewOf(const RingKv& ring) {
  return {reinterpret_cast<unsigned char*>(ring.base + static_cast<uintptr_t>(ring.layer_offset)),
          ring.state_bytes, ring.row_bytes, ring.ring_rows, As<const int32_t>(ring.state)};
}

__device__ __forceinline__ unsigned char* RowAt(const RingView& ring, int sequence, int position) {
  return ring.base + ring.state[sequence] * ring.state_bytes +
         position % ring.ring_rows * ring.row_bytes;
}

}  // namespace weir::kernels::cuda
