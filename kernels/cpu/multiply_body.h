// SPDX-License-Identifier: Apache-2.0
//
// The body of multiply_tile for every instruction set. The including file has defined Vec and, per
// storage, a struct derived from Stored that expands codes:
//   kFactor                   what an expanded value must still be multiplied by, if not 1
//   Group Open(codes)         loads a group
//   F At(group, u, v)         vector v of input u
// All of it is in an unnamed namespace: each instruction set gets its own copy.
#pragma once

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace weir::kernels::cpu {
namespace {

constexpr int kVectors = kTile / Vec::kLanes;

template <Storage kStorage>
struct Stored {
  static constexpr int kUnit = kStoredShape[static_cast<int>(kStorage)].inputs;
  static constexpr int kGroupBytes = kStoredShape[static_cast<int>(kStorage)].bytes;
  static constexpr float kFactor = 1;
};

// What memory delivers in its latency, and beyond the 4 KiB page where a hardware prefetcher stops.
constexpr int64_t kAheadBytes = 6144;

// Zeroes `total`, [rows][kTile].
WEIR_LANE_CODE void ClearTotals(int rows, float* total) {
  for (int i = 0; i < rows * kTile; i += Vec::kLanes) Vec::Store(total + i, Vec::Zero());
}

// The scale of vector v in block `block`, times what the expansion left out.
template <class W>
WEIR_LANE_CODE Vec::F ScaleOf(const Packed& w, const uint8_t* scales, int64_t block, int v) {
  Vec::F scale = w.scale_kind == Scales::kPerBlock
                     ? Vec::Set1(reinterpret_cast<const float*>(scales)[block])
                     : Vec::E8m0(scales + block * kTile + v * Vec::kLanes);
  if constexpr (W::kFactor != 1) scale = Vec::Mul(scale, Vec::Set1(W::kFactor));
  return scale;
}

// Adds a finished chain to the total.
template <class W>
WEIR_LANE_CODE void Finish(const Packed& w, const uint8_t* scales, int64_t block, int v,
                           Vec::F chain, float* total) {
  const Vec::F before = Vec::Load(total);
  Vec::Store(total, w.scale_kind == Scales::kNone
                        ? Vec::Add(before, chain)
                        : Vec::Fma(chain, ScaleOf<W>(w, scales, block, v), before));
}

// Few rows: codes go straight into registers and are multiplied there.
template <class W, int kRows>
__attribute__((noinline)) void Direct(const Packed& w, int64_t tile, const float* const* x,
                                      float* total) {
  const uint8_t* codes = w.codes + tile * w.tile_bytes;
  const uint8_t* scales = w.scales + tile * w.scale_tile_bytes;
  ClearTotals(kRows, total);
  int64_t i = 0;
  for (int64_t block = 0; i < w.cols; ++block) {
    const int64_t end = i + w.block < w.cols ? i + w.block : w.cols;
    Vec::F chain[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) chain[r][v] = Vec::Zero();
    }
    for (; i < end; i += W::kUnit) {
#pragma GCC unroll 8
      for (int64_t line = 0; line < W::kGroupBytes; line += 64) {
        __builtin_prefetch(codes + kAheadBytes + line);
      }
      const typename W::Group group = W::Open(codes);
      codes += W::kGroupBytes;
#pragma GCC unroll 8
      for (int u = 0; u < W::kUnit; ++u) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const Vec::F weight = W::At(group, u, v);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            chain[r][v] = Vec::Fma(weight, Vec::Set1(x[r][i + u]), chain[r][v]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        Finish<W>(w, scales, block, v, chain[r][v], total + r * kTile + v * Vec::kLanes);
      }
    }
  }
}

// One chain of `n` inputs of an expanded block for kRows rows.
template <class W, int kRows>
__attribute__((noinline)) void Micro(const Packed& w, const uint8_t* scales, int64_t block,
                                     const float* panel, int64_t first, int64_t n,
                                     const float* const* x, float* total) {
  const float* in[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) in[r] = x[r] + first;
  for (int c = 0; c < kVectors; c += Vec::kMicroVectors) {
    Vec::F chain[kRows][Vec::kMicroVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vec::kMicroVectors; ++v) chain[r][v] = Vec::Zero();
    }
    const float* weights = panel + c * Vec::kLanes;
    for (int64_t i = 0; i < n; ++i, weights += kTile) {
      Vec::F weight[Vec::kMicroVectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vec::kMicroVectors; ++v) {
        weight[v] = Vec::Load(weights + v * Vec::kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec::F value = Vec::Set1(in[r][i]);
#pragma GCC unroll 4
        for (int v = 0; v < Vec::kMicroVectors; ++v) {
          chain[r][v] = Vec::Fma(weight[v], value, chain[r][v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vec::kMicroVectors; ++v) {
        Finish<W>(w, scales, block, c + v, chain[r][v], total + r * kTile + (c + v) * Vec::kLanes);
      }
    }
  }
}

template <class W, int kRows>
WEIR_LANE_CODE void MicroTail(const Packed& w, const uint8_t* scales, int64_t block,
                              const float* panel, int64_t first, int64_t n, int rows,
                              const float* const* x, float* total) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      Micro<W, kRows>(w, scales, block, panel, first, n, x, total);
    } else {
      MicroTail<W, kRows - 1>(w, scales, block, panel, first, n, rows, x, total);
    }
  }
}

struct WeightF32 : Stored<Storage::kF32> {
  using Group = const float*;
  WEIR_LANE_CODE Group Open(const uint8_t* codes) { return reinterpret_cast<const float*>(codes); }
  WEIR_LANE_CODE Vec::F At(Group group, int u, int v) { return Vec::Load(group + v * Vec::kLanes); }
};

template <class W>
constexpr bool kLiesExpanded = false;
template <>
constexpr bool kLiesExpanded<WeightF32> = true;

// The weights of n inputs as F32 [n][kTile], in `panel` unless they lie so already.
template <class W>
WEIR_LANE_CODE const float* Expand(const uint8_t* codes, int64_t n, float* panel) {
  if constexpr (kLiesExpanded<W>) return reinterpret_cast<const float*>(codes);
  for (int64_t i = 0; i < n; i += W::kUnit, codes += W::kGroupBytes) {
    const typename W::Group group = W::Open(codes);
#pragma GCC unroll 8
    for (int u = 0; u < W::kUnit; ++u) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        Vec::Store(panel + (i + u) * kTile + v * Vec::kLanes, W::At(group, u, v));
      }
    }
  }
  return panel;
}
// Many rows: each block is expanded once and used by all of them.
template <class W>
void Paneled(const Packed& w, int64_t tile, int count, const float* const* x, float* total,
             float* panel) {
  const uint8_t* codes = w.codes + tile * w.tile_bytes;
  const uint8_t* scales = w.scales + tile * w.scale_tile_bytes;
  ClearTotals(count, total);
  int64_t first = 0;
  for (int64_t block = 0; first < w.cols; ++block, first += w.block) {
    const int64_t n = w.cols - first < w.block ? w.cols - first : w.block;
    const float* weights = Expand<W>(codes, n, panel);
    codes += n / W::kUnit * W::kGroupBytes;
    int r = 0;
    for (; r + Vec::kMicroRows <= count; r += Vec::kMicroRows) {
      Micro<W, Vec::kMicroRows>(w, scales, block, weights, first, n, x + r, total + r * kTile);
    }
    MicroTail<W, Vec::kMicroRows - 1>(w, scales, block, weights, first, n, count - r, x + r,
                                      total + r * kTile);
  }
}

template <class W, int kRows>
WEIR_LANE_CODE bool DirectIfFew(const Packed& w, int64_t tile, int count, const float* const* x,
                                float* total) {
  if constexpr (kRows > 0) {
    if (count == kRows) {
      Direct<W, kRows>(w, tile, x, total);
      return true;
    }
    return DirectIfFew<W, kRows - 1>(w, tile, count, x, total);
  }
  return false;
}

template <class W>
void MultiplyStored(const Packed& w, int64_t tile, int count, const float* const* x,
                    float* const* out, int wide, float* scratch) {
  float* const total = scratch;
  float* const panel = scratch + int64_t{kRowsMax} * kTile;
  if (!DirectIfFew<W, Vec::kDirectRows>(w, tile, count, x, total)) {
    Paneled<W>(w, tile, count, x, total, panel);
  }
  for (int r = 0; r < count; ++r) {
    const float* from = total + int64_t{r} * kTile;
    float* to = out[r];
    if (wide == kTile) {
      for (int o = 0; o < kTile; o += Vec::kLanes) Vec::Store(to + o, Vec::Load(from + o));
    } else {
      for (int o = 0; o < wide; ++o) to[o] = from[o];
    }
  }
}

template <class Bf16, class F8, class F4>
void MultiplyTile(const Packed& w, int64_t tile, int count, const float* const* x,
                  float* const* out, int wide, float* scratch) {
  switch (w.storage) {
    case Storage::kF32:
      return MultiplyStored<WeightF32>(w, tile, count, x, out, wide, scratch);
    case Storage::kBf16:
      return MultiplyStored<Bf16>(w, tile, count, x, out, wide, scratch);
    case Storage::kF8:
      return MultiplyStored<F8>(w, tile, count, x, out, wide, scratch);
    case Storage::kF4:
      return MultiplyStored<F4>(w, tile, count, x, out, wide, scratch);
  }
}

}  // namespace
}  // namespace weir::kernels::cpu
