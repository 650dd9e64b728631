// SPDX-License-Identifier: Apache-2.0
//
// Weights as the linear kernels read them: tiles of 64 outputs by 64 inputs, in the order in which
// the tensor cores' lanes want them, so that a tile comes as one copy and a lane's share as whole
// vectors. Values keep their stored form; nothing is rounded. Pure; on the loading thread. A stored
// form that no kernel takes is an empty answer.
//
// Tile (o, i) lies at ((o / 2 * input_tiles + i) * 2 + o % 2) * TileBytes: two tiles of outputs
// side by side, their inputs in order. In a tile, thread t of 128 has outputs t / 32 * 16 + t % 32
// / 4 and that + 8; of each 16 inputs it has t % 4 * 2, + 1, + 8 and + 9. Its 32 values lie in
// vectors of 16 bytes, vector v of thread t at (v * 128 + t) * 16. Scales come after them: a byte
// for each of two outputs and two times 32 inputs, the four bytes of threads 4 q ... 4 q + 3 at q *
// 4; or one F32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op/tensor.h"

namespace weir::kernels::cuda {

enum class Packed : uint8_t {
  kNone = 0,
  kBf16 = 1,
  kFp8 = 2,      // E8M0 scales for 32 inputs
  kFp8Tile = 3,  // an F32 scale for a tile
  kFp4 = 4,      // E8M0 scales for 32 inputs
};

constexpr int kPackOutputs = 64;
constexpr int kPackInputs = 64;
constexpr int kPackThreads = 128;

constexpr int PackedValueBytes(Packed form) {
  constexpr int kValues = kPackOutputs * kPackInputs;
  return form == Packed::kBf16 ? kValues * 2 : form == Packed::kFp4 ? kValues / 2 : kValues;
}
constexpr int TileBytes(Packed form) {
  return PackedValueBytes(form) + (form == Packed::kBf16 ? 0 : form == Packed::kFp8Tile ? 16 : 128);
}

// For device code, which may not call them.
template <Packed kForm>
inline constexpr int kValueBytesOf = PackedValueBytes(kForm);
template <Packed kForm>
inline constexpr int kTileBytesOf = TileBytes(kForm);

// Of a matrix with these fields; blocks of scales must fit the tiles.
Packed PackedFormOf(const HostMatrix& host);
Packed PackedFormOf(const Matrix& matrix);

// Outputs are padded to two tiles and inputs to one, with zeros.
size_t PackedBytes(const HostMatrix& host);
void Pack(const HostMatrix& host, unsigned char* to);

}  // namespace weir::kernels::cuda
