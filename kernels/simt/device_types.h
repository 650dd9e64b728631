// SPDX-License-Identifier: Apache-2.0
//
// CUDA's vector types for the host's compiler, with CUDA's sizes and alignments, and what a thread
// of a kernel knows of itself. Plain values; kernels see them under CUDA's own names.
#pragma once

#include <cstdint>

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace weir::kernels::simt {

// The running thread; every fiber is one.
struct ThreadView {
  uint3 thread_index;
  uint3 block_index;
  dim3 block_size;
  dim3 grid_size;
  unsigned char* shared = nullptr;  // the block's window
  int lane = 0;
};

extern thread_local ThreadView* g_thread;

}  // namespace weir::kernels::simt
