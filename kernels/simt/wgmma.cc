// SPDX-License-Identifier: Apache-2.0
//
// wgmma: each warp of a warpgroup multiplies its 16 rows of A by B, both read from shared memory by
// descriptor, or A from registers. The product happens when its warp waits for it; until then the
// accumulators read as NaN, so that a missing wait shows. What it reads counts as read at the issue
// and again when it happens.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/simt/machine.h"
#include "kernels/simt/numbers.h"

namespace weir::kernels::simt {
namespace {

constexpr size_t kRows = 16;  // of one warp
constexpr size_t kColumnsMax = 256;

// A matrix descriptor, PTX manual, "Matrix-descriptor format"; offsets in bytes.
struct Descriptor {
  uint32_t start = 0;
  uint32_t leading = 0;
  uint32_t stride = 0;
  Swizzle swizzle = Swizzle::kNone;
};

Descriptor Unpack(uint64_t bits) {
  constexpr Swizzle kBySwizzleBits[4] = {Swizzle::kNone, Swizzle::k128, Swizzle::k64, Swizzle::k32};
  return {static_cast<uint32_t>(bits & 0x3fff) << 4,
          static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4,
          static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4, kBySwizzleBits[bits >> 62]};
}

// Where 16 bytes of an operand lie: `outer` is its M or N, `inner_byte` its place along K in bytes.
uint32_t ChunkKMajor(const Descriptor& d, uint32_t outer, uint32_t inner_byte) {
  if (d.swizzle == Swizzle::kNone) {
    return d.start + outer / 8 * d.stride + inner_byte / 16 * d.leading + outer % 8 * 16;
  }
  const uint32_t row_bytes = 16u << static_cast<int>(d.swizzle);
  return SwizzleOffset(d.swizzle,
                       d.start + outer / 8 * d.stride + outer % 8 * row_bytes + inner_byte);
}

// Eight neighbours along M or N of one K.
uint32_t ChunkOuterMajor(const Descriptor& d, uint32_t outer, uint32_t k) {
  const uint32_t row_bytes = 16u << static_cast<int>(d.swizzle);
  const uint32_t width = row_bytes / 2;  // of 16-bit elements
  const uint32_t linear = d.start + outer / width * d.leading + k / 8 * d.stride +
                          k % 8 * row_bytes + outer % width * 2;
  return SwizzleOffset(d.swizzle, linear);
}

float DecodeOne(Operand operand, const unsigned char* from) {
  if (operand == Operand::kE4m3) return FromE4m3(*from);
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  return operand == Operand::kBf16 ? FromBf16(bits) : FromF16(bits);
}

struct OperandView {
  Descriptor descriptor;
  Operand operand{};
  bool transposed = false;
  uint32_t outer_begin = 0;
  uint32_t outer_count = 0;
};

// Calls f(outer, k, element) for every element of the view, or only checks it.
template <class F>
void Read(Fiber* self, const OperandView& view, Site at, F&& f) {
  const Origin origin{"wgmma operand", at};
  const uint32_t size = view.operand == Operand::kE4m3 ? 1 : 2;
  const uint32_t per = 16 / size;
  const uint32_t depth = 32 / size;
  const uint32_t end = view.outer_begin + view.outer_count;
  const auto chunk = [&](uint32_t offset) -> const unsigned char* {
    if (offset + 16 > kWindowBytes) {
      g_machine->report.Add(FindingKind::kOutOfBounds, origin,
                            "its descriptor leaves shared memory");
      return nullptr;
    }
    const unsigned char* from = self->block->window + offset;
    CheckAccess(self, from, 16, Access::kAsyncRead, origin);
    return from;
  };
  if (view.transposed) {
    for (uint32_t k = 0; k < depth; ++k) {
      for (uint32_t outer = view.outer_begin; outer < end; outer += per) {
        const unsigned char* from = chunk(ChunkOuterMajor(view.descriptor, outer, k));
        if (from != nullptr) {
          for (uint32_t e = 0; e < per; ++e) f(outer + e, k, from + e * size);
        }
      }
    }
    return;
  }
  for (uint32_t outer = view.outer_begin; outer < end; ++outer) {
    for (uint32_t k = 0; k < depth; k += per) {
      const unsigned char* from = chunk(ChunkKMajor(view.descriptor, outer, k * size));
      if (from != nullptr) {
        for (uint32_t e = 0; e < per; ++e) f(outer, k + e, from + e * size);
      }
    }
  }
}

OperandView ViewA(const WarpProduct& p, int warp) {
  return {Unpack(p.a), p.shape.operand, p.shape.a_transposed, static_cast<uint32_t>(warp % 4 * 16),
          kRows};
}
OperandView ViewB(const WarpProduct& p) {
  return {Unpack(p.b), p.shape.operand, p.shape.b_transposed, 0, static_cast<uint32_t>(p.shape.n)};
}

void RegistersOfA(const WarpProduct& p, float (*a)[32]) {
  const size_t size = p.shape.operand == Operand::kE4m3 ? 1 : 2;
  const size_t per = 4 / size;
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t word = 0; word < 4; ++word) {
      unsigned char bytes[4];
      std::memcpy(bytes, &p.a_registers[lane][word], 4);
      for (size_t e = 0; e < per; ++e) {
        a[lane / 4 + word % 2 * 8][word / 2 * per * 4 + lane % 4 * per + e] =
            DecodeOne(p.shape.operand, bytes + e * size);
      }
    }
  }
}

void Multiply(Fiber* self, const WarpProduct& p, std::vector<float>* c) {
  static thread_local float a[kRows][32];
  static thread_local float b[32][kColumnsMax];
  const auto n = static_cast<size_t>(p.shape.n);
  const size_t depth = p.shape.operand == Operand::kE4m3 ? 32 : 16;
  if (p.shape.a_in_registers) {
    RegistersOfA(p, a);
  } else {
    const OperandView view = ViewA(p, self->warp);
    Read(self, view, p.at, [&](uint32_t m, uint32_t k, const unsigned char* from) {
      a[m - view.outer_begin][k] = DecodeOne(p.shape.operand, from);
    });
  }
  Read(self, ViewB(p), p.at, [&](uint32_t column, uint32_t k, const unsigned char* from) {
    b[k][column] = DecodeOne(p.shape.operand, from);
  });
  for (size_t row = 0; row < kRows; ++row) {
    float sum[kColumnsMax];
    const auto cell = [&](size_t column) -> float& {
      const size_t lane = row % 8 * 4 + column % 8 / 2;
      return (*c)[lane * n / 2 + column / 8 * 4 + row / 8 * 2 + column % 2];
    };
    for (size_t column = 0; column < n; ++column) sum[column] = p.accumulate ? cell(column) : 0;
    for (size_t k = 0; k < depth; ++k) {
      for (size_t column = 0; column < n; ++column) sum[column] += a[row][k] * b[k][column];
    }
    for (size_t column = 0; column < n; ++column) cell(column) = sum[column];
  }
}

Warp& WarpOf(Fiber* self) { return self->block->warps[static_cast<size_t>(self->warp)]; }

// Takes the accumulators out of the lanes' hands.
void Borrow(Warp* warp, const WarpProduct& p) {
  const auto [found, fresh] = warp->in_flight.try_emplace(p.c[0]);
  if (!fresh) return;
  const auto each = static_cast<size_t>(p.shape.n) / 2;
  found->second.lanes = p.c;
  for (float* lane : p.c) {
    found->second.values.insert(found->second.values.end(), lane, lane + each);
    std::fill(lane, lane + each, std::nanf(""));
  }
}

void GiveBackUnused(Warp* warp) {
  for (auto at = warp->in_flight.begin(); at != warp->in_flight.end();) {
    bool used = false;
    const auto uses = [&](const std::vector<WarpProduct>& group) {
      for (const WarpProduct& p : group) used = used || p.c[0] == at->first;
    };
    uses(warp->open_products);
    for (const auto& group : warp->product_groups) uses(group);
    if (used) {
      ++at;
      continue;
    }
    const Accumulators& sums = at->second;
    const size_t each = sums.values.size() / 32;
    for (size_t lane = 0; lane < 32; ++lane) {
      std::copy_n(sums.values.begin() + static_cast<std::ptrdiff_t>(lane * each), each,
                  sums.lanes[lane]);
    }
    at = warp->in_flight.erase(at);
  }
}

}  // namespace

void WgmmaIssue(Fiber* self, const Meeting& meeting) {
  Warp& warp = WarpOf(self);
  const auto& first = *static_cast<WgmmaLane*>(meeting.argument[0]);
  if (!warp.wgmma_fenced) {
    g_machine->report.Add(FindingKind::kMisuse, {"wgmma", meeting.at},
                          "no wgmma.fence since its registers were last free");
  }
  WarpProduct p;
  p.shape = first.shape;
  p.a = first.a;
  p.b = first.b;
  p.accumulate = first.accumulate;
  p.at = meeting.at;
  for (size_t lane = 0; lane < 32; ++lane) {
    const auto& mine = *static_cast<WgmmaLane*>(meeting.argument[lane]);
    if (mine.a != p.a || mine.b != p.b || mine.accumulate != p.accumulate) {
      g_machine->report.Add(FindingKind::kDivergent, {"wgmma", meeting.at},
                            "lanes of a warp give different descriptors");
    }
    p.c[lane] = mine.c;
    if (p.shape.a_in_registers) std::memcpy(p.a_registers[lane].data(), mine.a_registers, 16);
  }
  ++warp.wgmma_count;
  Borrow(&warp, p);
  if (g_machine->options.check) {
    const auto nothing = [](uint32_t, uint32_t, const unsigned char*) {};
    if (!p.shape.a_in_registers) Read(self, ViewA(p, self->warp), p.at, nothing);
    Read(self, ViewB(p), p.at, nothing);
  }
  warp.open_products.push_back(p);
}

void WgmmaCommit(Fiber* self) {
  Warp& warp = WarpOf(self);
  warp.product_groups.push_back(std::move(warp.open_products));
  warp.open_products.clear();
}

void WgmmaWait(Fiber* self, const Meeting& meeting) {
  Warp& warp = WarpOf(self);
  const int keep = static_cast<WaitLane*>(meeting.argument[0])->groups;
  while (static_cast<int>(warp.product_groups.size()) > keep) {
    for (const WarpProduct& p : warp.product_groups.front()) {
      Multiply(self, p, &warp.in_flight[p.c[0]].values);
    }
    warp.product_groups.pop_front();
  }
  GiveBackUnused(&warp);
  if (warp.product_groups.empty()) warp.wgmma_fenced = false;
}

}  // namespace weir::kernels::simt
