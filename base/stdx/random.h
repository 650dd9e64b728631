// SPDX-License-Identifier: Apache-2.0
//
// Counter-based randomness: a value is a pure function of (seed, stream, index), so that a sampler,
// a retry or a simulation gets the same draw wherever and whenever it asks. The mixer is the
// finaliser of SplitMix64 applied to a keyed counter; it is not for cryptography.
#pragma once

#include <cstdint>

namespace weir {

// SplitMix64 finaliser: a bijection of 64 bits with good avalanche.
constexpr uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// Folds `value` into `state`; order matters.
constexpr uint64_t MixInto(uint64_t state, uint64_t value) {
  return Mix64(state * 0x9e3779b97f4a7c15ULL + value + 0x632be59bd9b4e019ULL);
}

constexpr uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index) {
  return MixInto(MixInto(Mix64(seed + 0x9e3779b97f4a7c15ULL), stream), index);
}

// Uniform in [0, 1) with 53 bits.
double RandomUnit(uint64_t seed, uint64_t stream, uint64_t index);

// A small sequential generator over one (seed, stream); copyable, not shared between threads.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint64_t Next() { return RandomBits(seed_, stream_, index_++); }
  // Uniform in [0, bound); bound > 0.
  uint64_t Below(uint64_t bound);
  // Uniform in [low, high], both included.
  int64_t Between(int64_t low, int64_t high);
  double Unit();
  bool Chance(double probability) { return Unit() < probability; }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t index_ = 0;
};

}  // namespace weir
