// SPDX-License-Identifier: Apache-2.0
//
// Runs a CUDA kernel on the CPU: each thread of a block is a fiber, blocks run one after another
// or, with `together`, all at once. The calling thread runs everything and blocks until the grid is
// done; nothing outlives the call. A kernel that hangs or breaks the rules ends with findings in
// the report, never with a hang: a deadlock ends the launch at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/simt/device_types.h"
#include "kernels/simt/memory.h"
#include "kernels/simt/report.h"

namespace weir::kernels::simt {

constexpr size_t kSharedMax = 227 * 1024;  // what Hopper gives one block
constexpr int kThreadsMax = 1024;

// `kLate`: an asynchronous copy lands when somebody has waited for it or nothing else can run, so
// that a missing wait shows. `kEarly`: at once. A seed lets copies land and threads run in any
// order.
enum class Landing : uint8_t { kLate = 0, kEarly = 1 };

// A mistake that the emulator makes on purpose at one place of a kernel, as if its author had made
// it: a test of tests. Places are counted from 0 in the order in which a launch first meets them.
enum class Sabotage : uint8_t {
  kNone = 0,
  kSkipBarrier = 1,  // __syncthreads and named barriers
  kSkipSyncWarp = 2,
  kSkipCopyWait = 3,  // of cp.async
  kWaitOneLess = 4,   // leaves one group more open
  kSkipMbarrierWait = 5,
  kWrongPhase = 6,
  kSkipMbarrierArrive = 7,
  kExpectLess = 8,  // announces half of the bytes
  kSkipProxyFence = 9,
  kSkipMbarrierFence = 10,
  kSkipWgmmaFence = 11,
  kSkipWgmmaWait = 12,
  kSkipStoreWait = 13,
  kSkipThreadFence = 14,
  kRelaxAtomic = 15,  // neither acquires nor releases
  kCountPlaces = 16,  // makes no mistake
};

struct Options {
  bool check = true;   // races, reads of unwritten bytes, bounds; needs an instrumented kernel
  bool count = false;  // loads and stores in Counters; needs an instrumented kernel too
  uint64_t seed = 0;   // 0: threads take turns in order
  Landing landing = Landing::kLate;
  Sabotage sabotage = Sabotage::kNone;
  int sabotage_place = 0;
  DeviceMemory* memory = nullptr;  // what global accesses are checked against; may be null
};

struct Shape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  // All blocks of the grid are resident at once, as a kernel needs whose blocks wait for each
  // other.
  bool together = false;
};

Report Run(const Options& options, const Shape& shape, const std::function<void()>& thread_main);

// Launch(options, shape, kernel, arguments...): every thread gets its own copy of the arguments.
template <class Kernel, class... Args>
Report Launch(const Options& options, const Shape& shape, Kernel kernel, Args... args) {
  return Run(options, shape, [&] { kernel(args...); });
}

}  // namespace weir::kernels::simt
