// SPDX-License-Identifier: Apache-2.0
//
// Loop: one thread that waits for sockets, timers and posted tasks, and runs one callback at a
// time. Post, Stop and the counters are for any thread; timers belong to the loop's own thread (or
// to the creator before the thread runs). Nothing that runs here may block: a callback over the
// stall limit is reported by name. The loop owns its tasks until they ran; those still queued when
// it stops are destroyed unrun.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/runtime/task.h"
#include "base/runtime/time.h"

namespace boost::asio {
class io_context;
}

namespace weir {

class Loop {
 public:
  struct Options {
    std::string name = "loop";
    Duration stall_limit = Millis(5);
    // Called on the loop's thread after a callback took longer than stall_limit. May be empty.
    std::function<void(std::string_view loop, std::string_view callback, Duration took)> on_stall;
  };
  using TimerId = uint64_t;  // never reused; 0 is no timer

  explicit Loop(Options options);
  ~Loop();  // Stop and join
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs the loop on a new thread. Once.
  void Start();
  // Runs the loop on the calling thread until Stop. Instead of Start, once.
  void Run();
  // Asks the loop to return after the current callback. The thread ends soon after; Join waits.
  void Stop();
  // Waits for the thread of Start. Not from the loop's own thread.
  void Join();

  // Queues `task`; tasks of one thread run in the order posted. `name` must outlive the loop (a
  // literal). The queue has no limit, so streams of events go through a bounded inbox (driver.h),
  // and only its wake-ups come here.
  void Post(const char* name, Task task);

  // Runs `task` on the loop and returns when it ran; on the calling thread where the loop does not
  // run (and then nobody else touches what the loop owns). This one waits: it is for set-up and
  // shutdown, from outside the loop.
  void Call(const char* name, Task task);

  // Runs `task` at or soon after `when`, on this loop. For the loop's thread.
  TimerId At(const char* name, Instant when, Task task);
  TimerId After(const char* name, Duration delay, Task task);
  // Drops the timer's task; a timer that ran or was cancelled is ignored.
  void Cancel(TimerId timer);

  // True on the thread that runs the loop.
  bool InLoop() const;
  // True from Start or Run until the loop has returned. While false, nothing runs here, and the
  // owner may do the loop's work by hand.
  bool running() const { return running_.load(); }
  const std::string& name() const { return options_.name; }

  // Callbacks finished so far. With Lag it shows whether the loop is alive.
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  uint64_t stalls() const { return stalls_.load(std::memory_order_relaxed); }
  // How long ago the loop last proved that it turns; a free loop does so every 100 ms. Zero before
  // the loop runs.
  Duration Lag() const;

  // For base/net only: the asio context behind this loop.
  boost::asio::io_context& io();

  // Times one callback that reached the loop's thread by another way than Post and timers.
  class Scope {
   public:
    Scope(Loop& loop, const char* name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Loop& loop_;
    const char* name_;
    Instant begin_;
  };

 private:
  struct Impl;
  void Beat();

  const Options options_;
  std::unique_ptr<Impl> impl_;
  std::thread thread_;
  std::atomic<bool> running_{false};
  std::atomic<std::thread::id> runner_{};
  std::atomic<uint64_t> turns_{0};
  std::atomic<uint64_t> stalls_{0};
  std::atomic<int64_t> last_beat_ns_{0};  // steady nanoseconds; 0 before the loop runs
};

}  // namespace weir
