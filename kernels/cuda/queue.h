// SPDX-License-Identifier: Apache-2.0
//
// Where kernels are launched: a CUDA stream, or the emulator when the host's compiler builds the
// same source. A Queue belongs to one thread, runs its work in order and owns nothing. On a device
// a launch returns at once; emulated, it returns when the kernel is done and adds to the report.
#pragma once

#include <cstddef>

#ifdef __CUDACC__
#include <cuda_runtime_api.h>
#else
#include "kernels/simt/launch.h"
#endif

namespace weir::kernels::cuda {

#ifdef __CUDACC__
struct Queue {
  cudaStream_t stream = nullptr;
};

template <class Kernel, class... Args>
void Launch(const Queue& queue, dim3 grid, dim3 block, size_t shared_bytes, Kernel kernel,
            Args... args) {
  if (shared_bytes > 48 * 1024) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  }
  kernel<<<grid, block, shared_bytes, queue.stream>>>(args...);
}
#else
struct Queue {
  simt::Options options;
  simt::Report* report = nullptr;  // of all launches; borrowed
};

template <class Kernel, class... Args>
void Launch(const Queue& queue, dim3 grid, dim3 block, size_t shared_bytes, Kernel kernel,
            Args... args) {
  queue.report->Absorb(simt::Launch(queue.options, {grid, block, shared_bytes}, kernel, args...));
}
#endif

}  // namespace weir::kernels::cuda
