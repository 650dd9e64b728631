// SPDX-License-Identifier: Apache-2.0
//
// Each story runs in a child process: signals and exit codes belong to a process.
#include "base/app/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"

namespace weir {
namespace {

enum class Draining { kAtOnce, kNever };

// Writes one letter per call to `fd`, so that the parent can follow.
class StoryService : public Service {
 public:
  StoryService(int fd, Draining draining) : fd_(fd), draining_(draining) { Tell('s'); }
  ~StoryService() override { Tell('x'); }
  void Drain(Task drained) override {
    Tell('d');
    if (draining_ == Draining::kAtOnce) drained();
  }
  absl::Status Reload() override {
    Tell('r');
    return Error(Reason::kBadField, "still wrong");
  }

 private:
  void Tell(char letter) { EXPECT_EQ(write(fd_, &letter, 1), 1); }
  const int fd_;
  const Draining draining_;
};

class Child {
 public:
  template <class Make>
  Child(Duration drain_timeout, Make make) {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(fds[0]);
      const int code = RunProcess({.drain_timeout = drain_timeout},
                                  [&](ProcessControl* control) { return make(fds[1], control); });
      _exit(code);
    }
    close(fds[1]);
    fd_ = fds[0];
  }
  ~Child() { close(fd_); }

  // The next letter, 0 at the end.
  char Next() {
    char letter = 0;
    return read(fd_, &letter, 1) == 1 ? letter : '\0';
  }
  void Signal(int number) { kill(pid_, number); }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
  int fd_;
};

using Made = absl::StatusOr<std::unique_ptr<Service>>;
constexpr Duration kLong = std::chrono::seconds(60);

TEST(Process, ReloadsDrainsAndEndsClean) {
  Child child(kLong, [](int fd, ProcessControl*) -> Made {
    return std::make_unique<StoryService>(fd, Draining::kAtOnce);
  });
  EXPECT_EQ(child.Next(), 's');
  child.Signal(SIGHUP);
  EXPECT_EQ(child.Next(), 'r');
  child.Signal(SIGTERM);
  EXPECT_EQ(child.Next(), 'd');
  EXPECT_EQ(child.Next(), 'x');
  EXPECT_EQ(child.Wait(), kExitClean);
}

TEST(Process, SecondSignalExitsAtOnce) {
  Child child(kLong, [](int fd, ProcessControl*) -> Made {
    return std::make_unique<StoryService>(fd, Draining::kNever);
  });
  EXPECT_EQ(child.Next(), 's');
  child.Signal(SIGINT);
  EXPECT_EQ(child.Next(), 'd');
  child.Signal(SIGTERM);
  EXPECT_EQ(child.Wait(), 128 + SIGTERM);
}

TEST(Process, DrainHasADeadline) {
  Child child(Millis(20), [](int fd, ProcessControl*) -> Made {
    return std::make_unique<StoryService>(fd, Draining::kNever);
  });
  EXPECT_EQ(child.Next(), 's');
  child.Signal(SIGTERM);
  EXPECT_EQ(child.Wait(), kExitFailed);
}

TEST(Process, AServiceMayEndItself) {
  Child child(kLong, [](int fd, ProcessControl* control) -> Made {
    auto service = std::make_unique<StoryService>(fd, Draining::kAtOnce);
    std::thread([control] { control->RequestStop(kExitBug); }).join();
    return service;
  });
  EXPECT_EQ(child.Wait(), kExitBug);
}

TEST(Process, FailedStartsSayWhoMustAct) {
  Child config(kLong, [](int, ProcessControl*) -> Made { return Error(Reason::kBadField, "bad"); });
  EXPECT_EQ(config.Wait(), kExitBadConfig);
  Child bug(kLong, [](int, ProcessControl*) -> Made { return Error(Reason::kBug, "ours"); });
  EXPECT_EQ(bug.Wait(), kExitBug);
  Child lost(kLong, [](int, ProcessControl*) -> Made { return Error(Reason::kPeerLost, "no peer"); });
  EXPECT_EQ(lost.Wait(), kExitFailed);
}

}  // namespace
}  // namespace weir
