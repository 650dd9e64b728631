// SPDX-License-Identifier: Apache-2.0
//
// The life of a weir process, so that main() is one statement: make the service, serve until a
// signal, drain within a deadline, end with an exit code that says why. Everything here runs on the
// main thread, which blocks on signals only. SIGTERM or SIGINT drains; a second one exits at once;
// SIGHUP reloads. Call RunProcess before any thread exists, since it blocks these signals for all.
#pragma once

#include <functional>
#include <memory>

#include "base/runtime/task.h"
#include "base/runtime/time.h"
#include "base/stdx/status.h"

namespace weir {

// What a process returns to whoever started it.
enum ExitCode : int {
  kExitClean = 0,
  kExitFailed = 1,     // could not start or drain in time, for another reason than the two below
  kExitBadConfig = 2,  // the operator must change something
  kExitBug = 70,       // ours, or a poisoned device: restart
};

// How a service ends its process by itself. Any thread; outlives the service.
class ProcessControl {
 public:
  virtual ~ProcessControl() = default;
  // As SIGTERM would: drain, then exit with `code`.
  virtual void RequestStop(int code) = 0;
};

class Service {
 public:
  virtual ~Service() = default;  // stops what still runs; waits for its threads
  // Stops taking work; `drained` may be called from any thread, once what ran is finished.
  virtual void Drain(Task drained) = 0;
  // Reads the reloadable part of the configuration again. A failure is logged and changes nothing.
  virtual absl::Status Reload() { return absl::OkStatus(); }
};

using ServiceFactory =
    std::function<absl::StatusOr<std::unique_ptr<Service>>(ProcessControl* control)>;

struct ProcessOptions {
  Duration drain_timeout = std::chrono::seconds(30);
};

// Returns the exit code for main.
int RunProcess(const ProcessOptions& options, const ServiceFactory& make);

// The exit code a failed start deserves.
int ExitCodeOf(const absl::Status& status);

}  // namespace weir
