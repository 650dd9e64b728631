// SPDX-License-Identifier: Apache-2.0
//
// ldmatrix, stmatrix and mma.sync on the fragments of 32 lanes, laid out as the PTX manual draws
// them: lane l holds row l / 4 and columns 2 (l % 4) ... of each 8 x 8 tile.
#include <array>
#include <cstring>

#include "kernels/simt/machine.h"
#include "kernels/simt/numbers.h"

namespace weir::kernels::simt {
namespace {

MatrixLane& Lane(const Meeting& meeting, size_t lane) {
  return *static_cast<MatrixLane*>(meeting.argument[lane]);
}

// The rows of one tile, checked: lane 8 tile + k names row k.
std::array<unsigned char*, 8> TileRows(Fiber* self, const Meeting& meeting, size_t tile,
                                       Access access) {
  const char* what = access == Access::kRead ? "ldmatrix" : "stmatrix";
  const Origin origin{what, meeting.at};
  std::array<unsigned char*, 8> rows{};
  std::array<uintptr_t, 8> address{};
  for (size_t k = 0; k < 8; ++k) {
    const size_t lane = tile * 8 + k;
    rows[k] = static_cast<unsigned char*>(Lane(meeting, lane).row);
    address[k] = reinterpret_cast<uintptr_t>(rows[k]);
    Fiber* owner = &self->block->fibers[static_cast<size_t>(self->warp * 32) + lane];
    if (address[k] % 16 != 0) {
      g_machine->report.Add(FindingKind::kMisaligned, origin, "a row is not on 16 bytes");
    }
    if (!InWindow(*self->block, rows[k])) {
      g_machine->report.Add(FindingKind::kOutOfBounds, origin, "a row is not in shared memory");
    }
    CheckAccess(owner, rows[k], 16, access, origin);
  }
  Counters& counters = g_machine->report.counters;
  counters.shared_transactions += BankPasses(address.data(), 8, 16);
  ++counters.shared_ideal;
  return rows;
}

float Decode(Operand operand, uint32_t bits) {
  static const auto e4m3 = [] {
    std::array<float, 256> table{};
    for (size_t i = 0; i < 256; ++i) table[i] = FromE4m3(static_cast<uint8_t>(i));
    return table;
  }();
  switch (operand) {
    case Operand::kBf16:
      return FromBf16(static_cast<uint16_t>(bits));
    case Operand::kF16:
      return FromF16(static_cast<uint16_t>(bits));
    case Operand::kE4m3:
      return e4m3[bits & 255];
  }
  return 0;
}

}  // namespace

void LoadMatrixTiles(Fiber* self, const Meeting& meeting) {
  const bool transposed = Lane(meeting, 0).transposed;
  const auto tiles = static_cast<size_t>(Lane(meeting, 0).tiles);
  for (size_t tile = 0; tile < tiles; ++tile) {
    const auto rows = TileRows(self, meeting, tile, Access::kRead);
    for (size_t lane = 0; lane < 32; ++lane) {
      const size_t row = lane / 4;
      const size_t column = lane % 4 * 2;
      uint32_t* to = Lane(meeting, lane).registers + tile;
      if (!transposed) {
        std::memcpy(to, rows[row] + column * 2, 4);
        continue;
      }
      std::memcpy(to, rows[column] + row * 2, 2);
      std::memcpy(reinterpret_cast<char*>(to) + 2, rows[column + 1] + row * 2, 2);
    }
  }
}

void StoreMatrixTiles(Fiber* self, const Meeting& meeting) {
  const bool transposed = Lane(meeting, 0).transposed;
  const auto tiles = static_cast<size_t>(Lane(meeting, 0).tiles);
  for (size_t tile = 0; tile < tiles; ++tile) {
    const auto rows = TileRows(self, meeting, tile, Access::kWrite);
    for (size_t lane = 0; lane < 32; ++lane) {
      const size_t row = lane / 4;
      const size_t column = lane % 4 * 2;
      const uint32_t* from = Lane(meeting, lane).registers + tile;
      if (!transposed) {
        std::memcpy(rows[row] + column * 2, from, 4);
        continue;
      }
      std::memcpy(rows[column] + row * 2, from, 2);
      std::memcpy(rows[column + 1] + row * 2, reinterpret_cast<const char*>(from) + 2, 2);
    }
  }
}

void MultiplyTiles(const Meeting& meeting) {
  const Operand operand = static_cast<MmaLane*>(meeting.argument[0])->operand;
  const size_t per = operand == Operand::kE4m3 ? 4 : 2;  // elements of a register
  const size_t bits = 32 / per;
  const size_t half = per * 4;  // columns of A that two registers span
  const size_t depth = half * 2;
  float a[16][32];
  float b[32][8];
  float c[16][8];
  for (size_t lane = 0; lane < 32; ++lane) {
    const auto& mine = *static_cast<MmaLane*>(meeting.argument[lane]);
    const size_t row = lane / 4;
    const size_t first = lane % 4 * per;
    for (size_t e = 0; e < per; ++e) {
      const auto at = [&](uint32_t word) { return Decode(operand, word >> (bits * e)); };
      a[row][first + e] = at(mine.a[0]);
      a[row + 8][first + e] = at(mine.a[1]);
      a[row][half + first + e] = at(mine.a[2]);
      a[row + 8][half + first + e] = at(mine.a[3]);
      b[first + e][row] = at(mine.b[0]);
      b[half + first + e][row] = at(mine.b[1]);
    }
    const size_t column = lane % 4 * 2;
    for (size_t e = 0; e < 4; ++e) c[row + e / 2 * 8][column + e % 2] = mine.c[e];
  }
  for (size_t i = 0; i < 16; ++i) {
    for (size_t k = 0; k < depth; ++k) {
      for (size_t j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  for (size_t lane = 0; lane < 32; ++lane) {
    float* to = static_cast<MmaLane*>(meeting.argument[lane])->c;
    const size_t row = lane / 4;
    const size_t column = lane % 4 * 2;
    for (size_t e = 0; e < 4; ++e) to[e] = c[row + e / 2 * 8][column + e % 2];
  }
}

}  // namespace weir::kernels::simt
