// SPDX-License-Identifier: Apache-2.0
//
// The inner loops, one set per instruction set: plain functions on plain memory, without threads or
// knowledge of operations. Each set lies in files that are compiled for it alone; this header is
// all that the rest of the tree sees of them, and it holds no function. Pointers need no more
// alignment than their type unless said otherwise. Thread-safe: they write only what they are
// given.
#pragma once

#include <cstdint>

#include "kernels/cpu/packed.h"

namespace weir::kernels::cpu {

enum class Isa : uint8_t {
  kScalar = 0,      // what every x86-64 has
  kAvx2 = 1,        // AVX2, FMA, F16C
  kAvx512 = 2,      // AVX-512 F, BW, DQ, VL
  kAvx512Vnni = 3,  // and VNNI, VBMI: table look-ups over bytes
};
inline constexpr int kIsaCount = 4;

// Rows that one call of multiply_tile takes at most.
inline constexpr int kRowsMax = 128;
// What multiply_tile needs: an expanded block and a total per row, both 64-byte aligned.
inline constexpr int64_t kMultiplyScratch = int64_t{kBlockMax} * kTile + int64_t{kRowsMax} * kTile;

// Positions that one attention tile holds at most; scores lie kAttendTile apart by head.
inline constexpr int kAttendTile = 32;
inline constexpr int kAttendHeads = 16;

struct AttendTile {
  int heads = 0;           // at most kAttendHeads
  int count = 0;           // positions in this tile
  int width = 0;           // of a key; a multiple of 16, zero-padded
  int values = 0;          // leading elements of a row that are its value; a multiple of 16
  int64_t q_stride = 0;    // between heads
  int64_t kv_stride = 0;   // between positions
  int64_t acc_stride = 0;  // between heads
  float scale = 0;
  const float* q = nullptr;   // [heads][width]
  const float* kv = nullptr;  // [count][width]
  float* scores = nullptr;    // scratch [heads][kAttendTile]
  float* top = nullptr;       // [heads]: running maximum; starts at -1e30
  float* total = nullptr;     // [heads]: running sum of weights; starts at 0
  float* acc = nullptr;       // [heads][values]: running sum of weighted values; starts at 0
};

struct KernelTable {
  // out[r][0..wide) = x[r] times tile `tile` of w, r < count <= kRowsMax, wide <= kTile.
  void (*multiply_tile)(const Packed& w, int64_t tile, int count, const float* const* x,
                        float* const* out, int wide, float* scratch) = nullptr;
  // The byte of an FP8 tile's line in which an output's code lies; null: bytes in order.
  const uint8_t* byte_of_output = nullptr;

  double (*sum_of_squares)(const float* x, int64_t n) = nullptr;
  void (*rms_norm)(const float* x, const float* weight, int width, float eps,
                   float* out) = nullptr;                                  // out may be x
  void (*add)(float* sum, const float* x, int64_t n) = nullptr;            // sum += x
  void (*axpy)(float* sum, float a, const float* x, int64_t n) = nullptr;  // sum += a x
  // gate = factor silu(min(gate, limit)) clamp(up, -limit, limit); no limit where it is 0
  void (*swiglu)(float* gate, const float* up, int64_t n, float limit, float factor) = nullptr;
  void (*widen_bf16)(const uint16_t* from, float* to, int64_t n) = nullptr;

  // sum over i of a[i] b[i] c[i] d[i]
  double (*dot_of_products)(const float* a, const float* b, const float* c, const float* d,
                            int64_t n) = nullptr;
  // Residual streams of one row (kernels/op/streams.h), at most kStreamsMax of them.
  void (*collapse)(const float* x, int streams, int64_t width, const float* pre,
                   float* out) = nullptr;
  void (*expand)(float* x, int streams, int64_t width, const float* y, const float* post,
                 const float* comb) = nullptr;
  // The largest of x; NaN if any of them is.
  float (*top)(const float* x, int64_t n) = nullptr;
  // out[i] = e^(x[i] - top), as near as 4 units in the last place; next to nothing below -87
  void (*exp_below)(const float* x, float top, int64_t n, float* out) = nullptr;
  // sum[k] += a max(x[k], 0), in double; NaN stays NaN.
  void (*relu_axpy)(double* sum, double a, const float* x, int64_t n) = nullptr;

  // Rows of KV stores (kernels/op/formats.h) to F32 and back, the reference's bits. Codes may lie
  // anywhere; encoded scales lie behind the codes.
  void (*decode_fp8_block32)(const uint8_t* codes, const uint8_t* scales, int width,
                             float* to) = nullptr;
  void (*decode_fp4_block16)(const uint8_t* codes, const uint8_t* scales, int width,
                             float* to) = nullptr;
  void (*decode_fp4_block32)(const uint8_t* codes, const uint8_t* scales, int width,
                             float* to) = nullptr;
  void (*encode_fp8_block32)(const float* x, int width, uint8_t* to) = nullptr;
  void (*encode_fp4_block16)(const float* x, int width, uint8_t* to) = nullptr;
  void (*encode_fp4_block32)(const float* x, int width, uint8_t* to) = nullptr;

  // One step of softmax attention over a tile of positions, heads sharing keys and values.
  void (*attend)(const AttendTile& tile) = nullptr;

  // Ceilings for measurements: reads bytes (a multiple of 1 KiB), does `count` multiply-adds.
  float (*read_bytes)(const uint8_t* from, int64_t bytes) = nullptr;
  float (*multiply_adds)(int64_t count) = nullptr;
};

}  // namespace weir::kernels::cpu
