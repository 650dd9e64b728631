// SPDX-License-Identifier: Apache-2.0
//
// How a weight lies in the CPU backend's memory: tiles of kTile outputs, inputs in order, codes as
// stored in the checkpoint and expanded in registers. Plain data: the kernels of every instruction
// set include this header, so it holds no function. The backend owns the bytes; they never change
// after load.
//
// Every sum runs over the inputs in order, in chains of `block` inputs that start from zero; a
// chain is multiplied by its scale and added to the total. That order is the same in every kernel,
// so a result does not depend on how many rows or outputs are computed together.
#pragma once

#include <cstdint>

namespace weir::kernels::cpu {

inline constexpr int kTile = 64;       // outputs side by side; a cache line of FP8
inline constexpr int kBlockMax = 128;  // inputs in one chain

enum class Storage : uint8_t {
  kF32 = 0,   // [input][output]
  kBf16 = 1,  // [input pair][output][2]
  kF8 = 2,    // [input][byte_of_output[output]]
  kF4 = 3,    // [input / 8][output], a dword of eight codes, the first input lowest
};

// Codes are read in groups: so many inputs of all outputs of a tile.
struct StoredShape {
  int inputs;
  int bytes;
};
inline constexpr StoredShape kStoredShape[] = {
    {1, 4 * kTile}, {2, 4 * kTile}, {1, kTile}, {8, 4 * kTile}};  // by Storage

enum class Scales : uint8_t {
  kNone = 0,
  kPerBlock = 1,   // F32 [tile][block]: one for the whole tile
  kPerOutput = 2,  // e8m0 [tile][block][output]
};

struct Packed {
  Storage storage = Storage::kF32;
  Scales scale_kind = Scales::kNone;
  int32_t block = kBlockMax;  // inputs in one chain, at most kBlockMax
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t tiles = 0;
  int64_t tile_bytes = 0;        // of codes
  int64_t scale_tile_bytes = 0;  // of scales
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
};

// What Matrix::address points to. A weight of MLA's kv_b is packed as two, by head: the part that
// is used transposed, and the part that is used as it lies; each head starts a tile.
struct PackedMatrix {
  Packed whole;  // or, split by head, the transposed part
  Packed second;
  int64_t head_tiles[2] = {0, 0};  // tiles of one head in `whole` and `second`; 0: not split
};

}  // namespace weir::kernels::cpu
