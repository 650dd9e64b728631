// SPDX-License-Identifier: Apache-2.0
#include "base/app/process.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "base/obs/log.h"
#include "base/runtime/clock.h"
#include "base/runtime/descriptors.h"
#include "base/stdx/bytes.h"

namespace weir {
namespace {

constexpr int kNoExit = -1;
constexpr Duration kGrace = std::chrono::seconds(2);  // past the deadline, for the last answers

std::atomic<int> g_exit_code{kNoExit};
std::atomic<bool> g_drained{false};

void WakeMain() { kill(getpid(), SIGUSR1); }

// Waits for one of `set`; 0 after `timeout`.
int WaitSignal(const sigset_t& set, Duration timeout) {
  const int64_t ns = std::max<int64_t>(timeout.count(), 0);
  const timespec wait = {static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  const int signal = sigtimedwait(&set, nullptr, &wait);
  return signal > 0 ? signal : 0;
}

// Drains until done, cut off or told to leave; returns the exit code.
int DrainAndWait(const sigset_t& set, ProcessHooks& hooks) {
  const Instant deadline = Now() + hooks.drain_limit;
  Log(LogLevel::kInfo, "draining", {{"limit_s", Seconds(hooks.drain_limit)}});
  hooks.drain(deadline, [] {
    g_drained = true;
    WakeMain();
  });
  while (true) {
    if (g_exit_code != kNoExit) return g_exit_code;
    if (g_drained) return 0;
    const Duration left = deadline + kGrace - Now();
    if (left <= Duration::zero()) {
      Log(LogLevel::kWarn, "the drain took too long; leaving");
      return 1;
    }
    const int signal = WaitSignal(set, left);
    if (signal == SIGTERM || signal == SIGINT) {
      Log(LogLevel::kWarn, "second signal; leaving at once");
      return 1;
    }
  }
}

}  // namespace

void RequestExit(int code) {
  int expected = kNoExit;
  g_exit_code.compare_exchange_strong(expected, code);
  WakeMain();
}

int RunProcess(ProcessHooks hooks) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  RaiseDescriptorLimit();  // a descriptor per connection and link
  g_exit_code = kNoExit;
  g_drained = false;

  const absl::Status started = hooks.start();
  if (!started.ok()) {
    std::fprintf(stderr, "weir: %s\n", std::string(StdView(started.message())).c_str());
    hooks.stop();
    return ReasonOf(started) == Reason::kBadField ? kExitBadConfig : 1;
  }
  int code = kNoExit;
  while (code == kNoExit) {
    const int signal = WaitSignal(set, std::chrono::hours(1));
    if (g_exit_code != kNoExit) {
      code = g_exit_code;
    } else if (signal == SIGTERM || signal == SIGINT) {
      code = DrainAndWait(set, hooks);
    } else if (signal == SIGHUP && hooks.reload) {
      hooks.reload();
    }
  }
  hooks.stop();
  Log(LogLevel::kInfo, "stopped", {{"code", code}});
  return code;
}

}  // namespace weir
