// SPDX-License-Identifier: Apache-2.0
//
// Sums over a warp and a block in an order that the shape alone fixes, so that a row's bits do not
// depend on what else runs. Every thread of the warp or block must call.
#pragma once

#include "kernels/cuda/device.cuh"

namespace weir::kernels::cuda {

template <class T>
__device__ __forceinline__ T WarpSum(T value) {
  for (int by = 16; by > 0; by /= 2) value += __shfl_xor_sync(dev::kAllLanes, value, by);
  return value;
}

// `partial` has room for one value of each warp, at most 32; it is free again after the call's end
// and one barrier more.
template <class T>
__device__ __forceinline__ T BlockSum(T value, T* partial) {
  value = WarpSum(value);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (dev::Lane() == 0) partial[warp] = value;
  __syncthreads();
  T total = 0;
  for (int i = 0; i < warps; ++i) total += partial[i];
  return total;
}

}  // namespace weir::kernels::cuda
