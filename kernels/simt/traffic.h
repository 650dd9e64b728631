// SPDX-License-Identifier: Apache-2.0
//
// Puts the loads and stores of a warp's lanes together again, although each lane runs by itself:
// the n-th time of every lane at one instruction is one access of the warp. Counts passes over the
// banks of shared memory and sectors of global memory. One per block, used by the launching thread;
// a block's end settles what is left.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "kernels/simt/report.h"

namespace weir::kernels::simt {

enum class Space : uint8_t { kShared, kGlobal };

class Traffic {
 public:
  void Note(Space space, const void* pc, int thread, uintptr_t address, size_t bytes, bool write,
            Counters* counters);
  void Settle(Counters* counters);

 private:
  struct WarpAccess {
    uint32_t mask = 0;
    std::array<uintptr_t, 32> address{};
  };
  struct Place {
    Space space{};
    size_t bytes = 0;
    bool write = false;
    std::array<uint64_t, 32> seen{};  // by lane
    uint64_t first = 0;               // number of pending.front()
    std::deque<WarpAccess> pending;
  };
  static void Count(const Place& place, const WarpAccess& access, Counters* counters);

  std::map<std::pair<const void*, int>, Place> places_;  // by instruction and warp
};

// Passes over the banks for these rows of `bytes` each, as ldmatrix makes in one phase.
uint64_t BankPasses(const uintptr_t* address, int count, size_t bytes);

}  // namespace weir::kernels::simt
