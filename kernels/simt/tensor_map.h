// SPDX-License-Identifier: Apache-2.0
//
// A box of a tensor, as the copy engine sees it: up to five dimensions, the innermost contiguous,
// with zeros outside and a swizzle inside shared memory. Made on the host, handed to kernels by
// value; it owns nothing and the tensor must outlive the launch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weir::kernels::simt {

// Which bits of a shared address are exclusive-ored into its 16-byte chunk number.
enum class Swizzle : uint8_t { kNone = 0, k32 = 1, k64 = 2, k128 = 3 };

// Bits 4... take bits 7... of the address in rows of as many bytes as the swizzle is named for.
constexpr uint32_t SwizzleOffset(Swizzle swizzle, uint32_t offset) {
  const uint32_t mask = (1u << static_cast<int>(swizzle)) - 1;
  return offset ^ (offset >> 7 & mask) << 4;
}

struct alignas(64) TensorMap {
  unsigned char* base = nullptr;
  int rank = 0;
  int element_bytes = 0;
  Swizzle swizzle = Swizzle::kNone;
  std::array<uint64_t, 5> extent{};        // innermost first, in elements
  std::array<uint64_t, 5> stride_bytes{};  // [0] is not used
  std::array<uint32_t, 5> box{};
};

// Innermost first.
template <int kRank>
TensorMap MakeTensorMap(void* base, int element_bytes, Swizzle swizzle,
                        const uint64_t (&extent)[kRank], const uint64_t (&stride_bytes)[kRank],
                        const uint32_t (&box)[kRank]) {
  TensorMap map;
  map.base = static_cast<unsigned char*>(base);
  map.rank = kRank;
  map.element_bytes = element_bytes;
  map.swizzle = swizzle;
  for (size_t d = 0; d < size_t{kRank}; ++d) {
    map.extent[d] = extent[d];
    map.stride_bytes[d] = stride_bytes[d];
    map.box[d] = box[d];
  }
  return map;
}

// Shared memory that one box takes.
constexpr uint32_t BoxBytes(const TensorMap& map) {
  uint32_t bytes = static_cast<uint32_t>(map.element_bytes);
  for (int d = 0; d < map.rank; ++d) bytes *= map.box[static_cast<size_t>(d)];
  return bytes;
}

}  // namespace weir::kernels::simt
