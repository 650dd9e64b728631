// SPDX-License-Identifier: Apache-2.0
#include "base/app/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weir {
namespace {

// Runs `hooks` in a child, sends it `signals` once it started, and returns its exit code.
int ExitCodeOf(ProcessHooks hooks, std::initializer_list<int> signals) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto start = hooks.start;
    hooks.start = [start, fd = ready[1]] {
      const absl::Status status = start ? start() : absl::OkStatus();
      (void)!write(fd, "x", 1);
      return status;
    };
    if (!hooks.stop) hooks.stop = [] {};
    _exit(RunProcess(hooks));
  }
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  for (const int signal : signals) kill(child, signal);
  int status = 0;
  waitpid(child, &status, 0);
  close(ready[0]);
  close(ready[1]);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Process, DrainsOnSigtermAndLeavesWithZero) {
  ProcessHooks hooks;
  hooks.drain = [](Instant, Task drained) { drained(); };
  EXPECT_EQ(ExitCodeOf(hooks, {SIGTERM}), 0);
}

TEST(Process, ReloadDoesNotEndIt) {
  ProcessHooks hooks;
  hooks.reload = [] {};
  hooks.drain = [](Instant, Task drained) { drained(); };
  EXPECT_EQ(ExitCodeOf(hooks, {SIGHUP, SIGINT}), 0);
}

TEST(Process, BadConfigurationLeavesWithTwo) {
  ProcessHooks hooks;
  hooks.start = [] { return Error(Reason::kBadField, "router.http_address: in use"); };
  EXPECT_EQ(ExitCodeOf(hooks, {}), 2);
}

TEST(Process, ADrainThatHangsIsCutOffByASecondSignal) {
  ProcessHooks hooks;
  hooks.drain = [](Instant, Task) { kill(getpid(), SIGINT); };
  EXPECT_EQ(ExitCodeOf(hooks, {SIGTERM}), 1);
}

TEST(Process, APoisonedDeviceLeavesWithSeventy) {
  ProcessHooks hooks;
  hooks.start = [] {
    RequestExit(kExitPoisoned);
    return absl::OkStatus();
  };
  EXPECT_EQ(ExitCodeOf(hooks, {}), 70);
}

}  // namespace
}  // namespace weir
