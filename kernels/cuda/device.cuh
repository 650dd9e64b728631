// SPDX-License-Identifier: Apache-2.0
//
// The instructions that kernels here use beyond CUDA C++: as PTX for nvcc, emulated for the host's
// compiler. Kernels include this and nothing else of either.
#pragma once

#ifdef __CUDACC__
#include "kernels/cuda/ptx_sm90.cuh"
#else
#include "kernels/simt/device.h"
#endif
