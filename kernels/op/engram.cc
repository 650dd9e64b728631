// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/engram.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/stdx/check.h"

namespace weir::kernels {
namespace {

__extension__ using Wide = unsigned __int128;

// NumPy's default generator, seeded with one 32-bit word: released multipliers were drawn with it.
class Pcg64 {
 public:
  explicit Pcg64(uint32_t seed) {
    std::array<uint64_t, 4> word = Seed(seed);
    increment_ = (Join(word[2], word[3]) << 1) | 1;
    Step();
    state_ += Join(word[0], word[1]);
    Step();
  }

  // Uniform in [0, bound), by multiplication and rejection.
  uint64_t Below(uint64_t bound) {
    const uint64_t unfair = (std::numeric_limits<uint64_t>::max() - bound + 1) % bound;
    for (;;) {
      const Wide product = Wide{Next()} * bound;
      if (static_cast<uint64_t>(product) >= unfair) return static_cast<uint64_t>(product >> 64);
    }
  }

 private:
  static Wide Join(uint64_t high, uint64_t low) { return Wide{high} << 64 | low; }

  void Step() {
    state_ = state_ * Join(0x2360ed051fc65da4, 0x4385df649fccf645) + increment_;
  }

  uint64_t Next() {
    Step();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return folded >> turn | folded << (-turn & 63);
  }

  // NumPy's SeedSequence: a pool of four words, mixed, and eight words drawn from it.
  static std::array<uint64_t, 4> Seed(uint32_t seed) {
    uint32_t constant = 0x43b0d7e5;
    const auto hash = [&constant](uint32_t value, uint32_t multiplier) {
      value ^= constant;
      constant *= multiplier;
      value *= constant;
      return value ^ value >> 16;
    };
    std::array<uint32_t, 4> pool;
    for (size_t i = 0; i < 4; ++i) pool[i] = hash(i == 0 ? seed : 0, 0x931e8875);
    for (size_t from = 0; from < 4; ++from) {
      for (size_t to = 0; to < 4; ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9dd * pool[to] - 0x4973f715 * hash(pool[from], 0x931e8875);
        pool[to] = mixed ^ mixed >> 16;
      }
    }
    constant = 0x8b51f9dd;
    std::array<uint64_t, 4> word{};
    for (size_t i = 0; i < 8; ++i) {
      word[i / 2] |= uint64_t{hash(pool[i % 4], 0x58f38ded)} << (i % 2 * 32);
    }
    return word;
  }

  Wide state_ = 0;
  Wide increment_ = 0;
};

bool IsPrime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

}  // namespace

std::vector<EngramLayout> EngramLayouts(const std::vector<int>& layers, int ngram, int heads,
                                        int64_t vocab, int64_t compressed_vocab) {
  // Products of an id and a multiplier stay below 2^63.
  const int64_t bound =
      std::max<int64_t>(std::numeric_limits<int64_t>::max() / compressed_vocab / 2, 1);
  WEIR_CHECK(bound > std::numeric_limits<uint32_t>::max());  // below, another draw is used
  std::vector<EngramLayout> layouts;
  int64_t prime = vocab - 1;
  for (const int layer : layers) {
    EngramLayout& layout = layouts.emplace_back();
    Pcg64 random(static_cast<uint32_t>(10007 * layer));
    for (int i = 0; i < ngram; ++i) {
      layout.multiplier.push_back(
          static_cast<int64_t>(random.Below(static_cast<uint64_t>(bound))) * 2 + 1);
    }
    for (int i = 0; i < (ngram - 1) * heads; ++i) {
      do ++prime;
      while (!IsPrime(prime));
      layout.prime.push_back(static_cast<int32_t>(prime));
      layout.offset.push_back(static_cast<int32_t>(layout.table_rows));
      layout.table_rows += prime;
    }
  }
  return layouts;
}

}  // namespace weir::kernels
