// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/pack.h"

#include <cstring>

namespace weir::kernels::cuda {
namespace {

constexpr int kThreadValues = kPackOutputs * kPackInputs / kPackThreads;

int64_t TilesOf(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }
int64_t OutputTiles(const HostMatrix& host) { return TilesOf(host.rows, 2 * kPackOutputs) * 2; }

Packed FormOf(DType dtype, DType scale) {
  switch (dtype) {
    case DType::kBf16:
      return Packed::kBf16;
    case DType::kF8E4m3:
      return scale == DType::kF8E8m0 ? Packed::kFp8 : Packed::kFp8Tile;
    case DType::kI8:
      return scale == DType::kF8E8m0 ? Packed::kFp4 : Packed::kNone;
    default:
      return Packed::kNone;
  }
}

// The stored code of one value; 0 outside, which is zero in every form.
unsigned CodeAt(const HostMatrix& host, int64_t row, int64_t col) {
  if (row >= host.rows || col >= host.cols) return 0;
  const auto at = static_cast<size_t>(row * host.cols + col);
  switch (host.dtype) {
    case DType::kBf16: {
      uint16_t code = 0;
      std::memcpy(&code, host.values + at * 2, sizeof(code));
      return code;
    }
    case DType::kI8:
      return static_cast<unsigned>(host.values[at / 2]) >> (at % 2 * 4) & 15;
    default:
      return static_cast<unsigned>(host.values[at]);
  }
}

size_t ScaleIndex(const HostMatrix& host, int64_t row, int64_t col) {
  return static_cast<size_t>(row / host.block_rows * TilesOf(host.cols, host.block_cols) +
                             col / host.block_cols);
}

void PutValue(Packed form, int thread, int value, unsigned code, unsigned char* tile) {
  const int per = form == Packed::kBf16 ? 8 : form == Packed::kFp4 ? 32 : 16;  // of a vector
  unsigned char* vector = tile + (value / per * kPackThreads + thread) * 16;
  if (form == Packed::kBf16) {
    const auto bits = static_cast<uint16_t>(code);
    std::memcpy(vector + value % per * 2, &bits, sizeof(bits));
  } else if (form == Packed::kFp4) {
    unsigned char& pair = vector[value / 2];
    pair = static_cast<unsigned char>(value % 2 == 0 ? code : pair | code << 4);
  } else {
    vector[value % per] = static_cast<unsigned char>(code);
  }
}

void PutScales(const HostMatrix& host, Packed form, int64_t row0, int64_t col0, unsigned char* to) {
  if (form == Packed::kBf16) return;
  if (form == Packed::kFp8Tile) {
    std::memset(to, 0, 16);
    if (row0 < host.rows) std::memcpy(to, host.scales + ScaleIndex(host, row0, col0) * 4, 4);
    return;
  }
  for (int quad = 0; quad < kPackThreads / 4; ++quad) {
    for (int b = 0; b < 4; ++b) {
      const int64_t row = row0 + quad / 8 * 16 + quad % 8 + b / 2 * 8;
      const int64_t col = col0 + b % 2 * 32;
      const bool inside = row < host.rows && col < host.cols;
      to[quad * 4 + b] =
          inside ? static_cast<unsigned char>(host.scales[ScaleIndex(host, row, col)]) : 127;
    }
  }
}

}  // namespace

Packed PackedFormOf(const HostMatrix& host) {
  const Packed form = FormOf(host.dtype, host.scale_dtype);
  if (form == Packed::kNone || form == Packed::kBf16) return form;
  const bool fits = form == Packed::kFp8Tile
                        ? host.block_rows % kPackOutputs == 0 && host.block_cols % kPackInputs == 0
                        : host.block_cols % 32 == 0;
  return host.scales != nullptr && fits && host.block_rows > 0 && host.block_cols > 0
             ? form
             : Packed::kNone;
}

Packed PackedFormOf(const Matrix& matrix) { return FormOf(matrix.dtype, matrix.scale_dtype); }

size_t PackedBytes(const HostMatrix& host) {
  return static_cast<size_t>(OutputTiles(host) * TilesOf(host.cols, kPackInputs)) *
         static_cast<size_t>(TileBytes(PackedFormOf(host)));
}

void Pack(const HostMatrix& host, unsigned char* to) {
  const Packed form = PackedFormOf(host);
  const int64_t input_tiles = TilesOf(host.cols, kPackInputs);
  for (int64_t o = 0; o < OutputTiles(host); ++o) {
    for (int64_t i = 0; i < input_tiles; ++i) {
      unsigned char* tile = to + ((o / 2 * input_tiles + i) * 2 + o % 2) * TileBytes(form);
      for (int t = 0; t < kPackThreads; ++t) {
        for (int v = 0; v < kThreadValues; ++v) {
          const int word = v / 2 % 4;  // of the lane's fragment: output + 8, input + 8
          const int64_t row = o * kPackOutputs + t / 32 * 16 + t % 32 / 4 + word % 2 * 8;
          const int64_t col = i * kPackInputs + v / 8 * 16 + word / 2 * 8 + t % 4 * 2 + v % 2;
          PutValue(form, t, v, CodeAt(host, row, col), tile);
        }
      }
      PutScales(host, form, o * kPackOutputs, i * kPackInputs, tile + PackedValueBytes(form));
    }
  }
}

}  // namespace weir::kernels::cuda
