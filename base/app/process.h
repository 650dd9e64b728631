// SPDX-License-Identifier: Apache-2.0
//
// The life of a process: signals in, exit code out. RunProcess owns the main thread, which waits for
// signals and nothing else. SIGTERM or SIGINT starts the drain, a second one leaves at once; SIGHUP
// reloads. Exit codes: 0 clean, 1 the start failed or the drain was cut off, 2 bad configuration,
// 70 a poisoned device.
#pragma once

#include <functional>

#include "base/runtime/task.h"
#include "base/runtime/time.h"
#include "base/stdx/status.h"

namespace weir {

inline constexpr int kExitBadConfig = 2;
inline constexpr int kExitPoisoned = 70;

struct ProcessHooks {
  // Starts everything. A failure is printed and leaves with 2 for kBadField, else 1.
  std::function<absl::Status()> start;
  // Finish what runs; call `drained` once, from any thread, when nothing is left.
  std::function<void(Instant deadline, Task drained)> drain;
  std::function<void()> reload;  // may be empty
  // Joins and closes; after it nothing of the process runs.
  std::function<void()> stop;
  Duration drain_limit = std::chrono::seconds(30);
};

// Call before any other thread exists: they inherit the blocked signals.
int RunProcess(ProcessHooks hooks);

// Makes RunProcess leave with `code`. Any thread; the first call counts.
void RequestExit(int code);

}  // namespace weir
