// SPDX-License-Identifier: Apache-2.0
//
// Beside every byte of checked memory, what is known of it: whether it exists, was written, is in
// use by an asynchronous copy, and who touched it last. A Shadow covers one region; pages of it
// come into being when they are touched. Owned by the memory or block whose region it covers; used
// by the launching thread alone. Creating one aborts when the address space is exhausted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::kernels::simt {

// launch : 12 | block : 20 | actor : 11 | clock : 21; 0 is nobody. A launch orders everything of
// the launches before it, so their stamps count as nobody's.
using Stamp = uint64_t;
constexpr uint32_t kLaunchMax = (1u << 12) - 1;
constexpr uint32_t kBlocksMax = 1u << 20;
constexpr uint32_t kClockMax = (1u << 21) - 1;

constexpr Stamp MakeStamp(uint32_t launch, uint32_t block, int actor, uint32_t clock) {
  return static_cast<Stamp>(launch) << 52 | static_cast<Stamp>(block) << 32 |
         static_cast<Stamp>(actor) << 21 | clock;
}
constexpr uint32_t LaunchOf(Stamp s) { return static_cast<uint32_t>(s >> 52); }
constexpr uint32_t BlockOf(Stamp s) { return static_cast<uint32_t>(s >> 32) & (kBlocksMax - 1); }
constexpr int ActorOf(Stamp s) { return static_cast<int>(s >> 21 & 2047); }
constexpr uint32_t ClockOf(Stamp s) { return static_cast<uint32_t>(s) & kClockMax; }

enum ByteFlag : uint8_t {
  kExists = 1,
  kWritten = 2,
  kLanding = 4,  // an asynchronous copy will write here
  kLeaving = 8,  // an asynchronous copy reads here
  kPlain = 16,   // the last write was a plain one, not an asynchronous copy
  kAtomic = 32,  // the last write was an atomic one
};

struct Cell {
  Stamp write = 0;
  Stamp read[2] = {0, 0};  // two readers that nothing orders; more replace the second
};

class Shadow {
 public:
  Shadow(const void* base, size_t bytes);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  bool Contains(const void* p) const {
    return static_cast<size_t>(static_cast<const unsigned char*>(p) - base_) < bytes_;
  }
  size_t OffsetOf(const void* p) const {
    return static_cast<size_t>(static_cast<const unsigned char*>(p) - base_);
  }
  size_t bytes() const { return bytes_; }

  uint8_t* flags() { return flags_; }
  Cell* cells() { return cells_; }

  // Forgets everything about the first `bytes`; `exists` of them exist, unwritten.
  void Reset(size_t bytes, size_t exists);
  void ForgetStamps();

 private:
  const unsigned char* base_;
  size_t bytes_;
  uint8_t* flags_;
  Cell* cells_;
};

}  // namespace weir::kernels::simt
