// SPDX-License-Identifier: Apache-2.0
#include "engine/model/engram_hash.h"

#include <algorithm>
#include <array>
#include <limits>

namespace weir::engine {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr Uint128 Join(uint64_t high, uint64_t low) { return (Uint128{high} << 64) | low; }

// numpy's SeedSequence for one 32-bit word of entropy: four words of 64 bits.
std::array<uint64_t, 4> SpreadSeed(uint32_t entropy) {
  constexpr uint32_t kMixLeft = 0xca01f9dd;
  constexpr uint32_t kMixRight = 0x4973f715;
  std::array<uint32_t, 4> pool{};
  uint32_t constant = 0x43b0d7e5;
  const auto hash = [&constant](uint32_t value, uint32_t factor) {
    value ^= constant;
    constant *= factor;
    value *= constant;
    return value ^ (value >> 16);
  };
  constexpr uint32_t kPoolFactor = 0x931e8875;
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = hash(i == 0 ? entropy : 0, kPoolFactor);
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const uint32_t mixed = kMixLeft * pool[to] - kMixRight * hash(pool[from], kPoolFactor);
      pool[to] = mixed ^ (mixed >> 16);
    }
  }
  std::array<uint64_t, 4> words{};
  constant = 0x8b51f9dd;
  for (size_t i = 0; i < 8; ++i) {
    const uint64_t half = hash(pool[i % pool.size()], 0x58f38ded);
    words[i / 2] |= half << (32 * (i % 2));
  }
  return words;
}

// PCG64 with the XSL-RR output, as numpy seeds it.
class Pcg64 {
 public:
  explicit Pcg64(uint32_t seed) {
    const std::array<uint64_t, 4> words = SpreadSeed(seed);
    increment_ = (Join(words[2], words[3]) << 1) | 1;
    Step();
    state_ += Join(words[0], words[1]);
    Step();
  }

  uint64_t Next() {
    Step();
    const auto high = static_cast<uint64_t>(state_ >> 64);
    const uint64_t mixed = high ^ static_cast<uint64_t>(state_);
    const auto turn = static_cast<unsigned>(high >> 58);
    return (mixed >> turn) | (mixed << ((64 - turn) % 64));
  }

  // Uniform below `bound`, by multiplication and rejection.
  uint64_t Below(uint64_t bound) {
    Uint128 product = Uint128{Next()} * bound;
    const uint64_t refused = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < refused) product = Uint128{Next()} * bound;
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  void Step() {
    state_ = state_ * Join(2549297995355413924ULL, 4865540595714422341ULL) + increment_;
  }

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
};

}  // namespace

std::vector<int64_t> EngramMultipliers(int layer, int tokens, int64_t compressed_vocab) {
  const int64_t bound =
      std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / compressed_vocab / 2);
  Pcg64 random(static_cast<uint32_t>(10007 * layer));
  std::vector<int64_t> factors(static_cast<size_t>(tokens));
  for (int64_t& factor : factors) {
    factor = static_cast<int64_t>(random.Below(static_cast<uint64_t>(bound)) * 2 + 1);
  }
  return factors;
}

}  // namespace weir::engine
