// SPDX-License-Identifier: Apache-2.0
#include "base/app/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/obs/log.h"
#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir {
namespace {

// Shared with callbacks that may come after the process loop is over.
struct Wake {
  Wake() : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { WEIR_CHECK(fd >= 0); }
  ~Wake() { close(fd); }
  void Notify() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof(one));
  }

  const int fd;
  std::atomic<bool> stop_requested{false};
  std::atomic<int> stop_code{kExitClean};
  std::atomic<bool> drained{false};
};

class Process : public ProcessControl {
 public:
  Process() {
    sigemptyset(&signals_);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals_, number);
    // Threads made later inherit the mask, so only the descriptor sees these signals.
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    signal(SIGPIPE, SIG_IGN);  // a broken connection is an error of write()
    signal_fd_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
    WEIR_CHECK(signal_fd_ >= 0);
  }
  ~Process() override { close(signal_fd_); }

  void RequestStop(int code) override {
    wake_->stop_code.store(code);
    wake_->stop_requested.store(true);
    wake_->Notify();
  }

  int Serve(const ProcessOptions& options, Service& service);

 private:
  // The next signal, or nothing when woken or at the deadline.
  std::optional<int> WaitSignal(Instant deadline);
  int Drain(const ProcessOptions& options, Service& service, int code);

  sigset_t signals_;
  int signal_fd_;
  const std::shared_ptr<Wake> wake_ = std::make_shared<Wake>();
};

std::optional<int> Process::WaitSignal(Instant deadline) {
  int timeout_ms = -1;
  if (deadline != kNever) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now()).count();
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
  }
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {wake_->fd, POLLIN, 0}};
  poll(fds, 2, timeout_ms);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t cleared = read(wake_->fd, &count, sizeof(count));
  signalfd_siginfo info{};
  if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) return static_cast<int>(info.ssi_signo);
  return std::nullopt;
}

int Process::Serve(const ProcessOptions& options, Service& service) {
  for (;;) {
    const std::optional<int> number = WaitSignal(kNever);
    if (number == SIGHUP) {
      const absl::Status status = service.Reload();
      if (status.ok()) {
        LogInfo("configuration reloaded");
      } else {
        LogError("configuration not reloaded; the old one stays", {{"status", status}});
      }
    } else if (number) {
      return Drain(options, service, kExitClean);
    } else if (wake_->stop_requested.load()) {
      return Drain(options, service, wake_->stop_code.load());
    }
  }
}

int Process::Drain(const ProcessOptions& options, Service& service, int code) {
  LogInfo("draining", {{"timeout_s", Seconds(options.drain_timeout)}});
  const Instant deadline = Now() + options.drain_timeout;
  service.Drain([wake = wake_] {
    wake->drained.store(true);
    wake->Notify();
  });
  while (!wake_->drained.load()) {
    const std::optional<int> number = WaitSignal(deadline);
    if (number == SIGTERM || number == SIGINT) {
      LogWarning("second signal; exiting at once");
      _exit(128 + *number);
    }
    if (wake_->drained.load()) break;
    if (Now() >= deadline) {
      LogError("drain did not finish in time");
      return code == kExitClean ? kExitFailed : code;
    }
  }
  LogInfo("drained");
  return code;
}

// Connections are descriptors; the usual soft limit of 1024 is far below max_connections.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case Reason::kOk: return kExitClean;
    case Reason::kBadField: return kExitBadConfig;
    case Reason::kBug: return kExitBug;
    default: return kExitFailed;
  }
}

int RunProcess(const ProcessOptions& options, const ServiceFactory& make) {
  RaiseDescriptorLimit();
  Process process;
  absl::StatusOr<std::unique_ptr<Service>> service = make(&process);
  if (!service.ok()) {
    LogError("cannot start", {{"status", service.status()}});
    return ExitCodeOf(service.status());
  }
  const int code = process.Serve(options, **service);
  service->reset();
  return code;
}

}  // namespace weir
