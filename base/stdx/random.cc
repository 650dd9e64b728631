// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/random.h"

#include "base/stdx/check.h"

namespace weir {

double RandomUnit(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(RandomBits(seed, stream, index) >> 11) * 0x1.0p-53;
}

uint64_t Random::Below(uint64_t bound) {
  WEIR_CHECK(bound > 0);
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
}

int64_t Random::Between(int64_t low, int64_t high) {
  WEIR_CHECK(low <= high);
  return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
}

double Random::Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

}  // namespace weir
