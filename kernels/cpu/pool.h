// SPDX-License-Identifier: Apache-2.0
//
// ComputePool: the threads that compute. One of them, the leader, takes commands from streams in
// order, one at a time; a command may split its work over all threads. Nobody else computes, so more
// streams never mean more running threads. Urgent streams and others take turns as arbiter.h says,
// streams of one kind by the time that they have had. A command that is not urgent gives way between
// two of its parts and is taken up again where it stopped, so one long product delays nobody.
//
// Idle threads spin for a while, because the next command is usually microseconds away, and then
// park, because the core may belong to somebody else. Made at load; its threads end with it.
// Streams must be gone before. Nothing here fails.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/cpu/arbiter.h"

namespace weir::kernels::cpu {

// Bytes of scratch that each thread has for the command in hand, 64-byte aligned.
inline constexpr size_t kThreadScratch = size_t{1} << 20;
// Bytes of scratch for a command as a whole.
inline constexpr size_t kSharedScratch = size_t{4} << 20;

class ComputePool;

// What a command computes with. On the leader only; a part gets its thread's number and scratch.
class Team {
 public:
  struct Part {
    int thread = 0;
    std::byte* scratch = nullptr;  // kThreadScratch
  };

  Team(ComputePool* pool, std::byte* shared) : pool_(pool), shared_(shared) {}

  // Calls f(part, index) for every index below count, on any thread and in any order, and returns
  // when all have returned. Takes `grain` neighbours at a time.
  template <class F>
  void For(int64_t count, int64_t grain, const F& f);

  int threads() const;
  std::byte* shared() const { return shared_; }  // kSharedScratch; survives from For to For

 private:
  ComputePool* const pool_;
  std::byte* const shared_;
};

// Commands in order, from one thread at a time to the leader.
class CommandQueue {
 public:
  static constexpr size_t kArgumentBytes = 768;
  static constexpr uint64_t kCapacity = 1024;
  using Run = void (*)(Team& team, const void* arguments);

  explicit CommandQueue(ComputePool* pool);
  ~CommandQueue();  // waits for what was pushed
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  // Whether what is pushed from now on is urgent; commands before it in this queue become so too.
  void SetUrgent(bool urgent) { urgent_local_ = urgent; }
  // A copy of the arguments is kept. Waits only while kCapacity commands are pending.
  template <class Arguments>
  void Push(Run run, const Arguments& arguments) {
    static_assert(sizeof(Arguments) <= kArgumentBytes && alignof(Arguments) <= 16);
    static_assert(std::is_trivially_copyable_v<Arguments>);
    PushBytes(run, &arguments, sizeof(Arguments));
  }
  uint64_t pushed() const { return pushed_local_; }
  bool Done(uint64_t count) const { return done_.load(std::memory_order_acquire) >= count; }
  void Wait(uint64_t count);

 private:
  friend class ComputePool;
  struct Command {
    Run run = nullptr;
    bool urgent = false;
    alignas(16) std::byte arguments[kArgumentBytes];
  };

  void PushBytes(Run run, const void* arguments, size_t bytes);

  ComputePool* const pool_;
  const std::unique_ptr<Command[]> commands_;
  uint64_t pushed_local_ = 0;  // the pushing thread's
  bool urgent_local_ = false;  // likewise
  std::atomic<uint64_t> pushed_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<int> urgent_{0};        // urgent commands that are not done
  std::atomic<uint32_t> waiting_{0};  // threads parked in Wait
  std::atomic<uint64_t> spent_{0};    // time that the leader has given to this queue
};

class ComputePool {
 public:
  using Clock = uint64_t (*)();  // nanoseconds, never backwards; the leader reads it

  // 0 threads: as many as there are cores for this process.
  explicit ComputePool(int threads, Clock clock = SteadyClock);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return threads_; }
  static uint64_t SteadyClock();

 private:
  friend class Team;
  friend class CommandQueue;
  using Body = void (*)(const void* context, const Team::Part& part, int64_t begin, int64_t end);

  void Lead();
  void Work(int thread);
  bool RunOneCommand();
  // The queue whose turn it is, or null. During a slice of `outer`: a step that it gives way to.
  CommandQueue* Take(CommandQueue* outer);
  void Run(CommandQueue* queue, std::byte* shared);
  // Whether the slice in hand must end; and runs the step that it ends for.
  bool GivesWay();
  void RunStep();
  void RunParts(int64_t count, int64_t grain, Body body, const void* context);
  // Runs parts from `from` on and returns where it stopped: at `count`, or where it gave way.
  int64_t RunJob(int64_t from, int64_t count, int64_t grain, Body body, const void* context);
  // Takes parts of the current job until none is left; the leader, until it gives way. Returns the
  // first index that nobody will run.
  int64_t TakeParts(int thread);
  std::byte* SharedScratch(int level) const;  // 0, or 1 for a step within a slice
  Team::Part PartOf(int thread) const;
  void Ring();

  const int threads_;
  const Clock clock_;
  const std::unique_ptr<std::byte[], void (*)(std::byte*)> scratch_;

  // The job in hand. `ticket_` is its number (upper half) and the next index (lower half), changed
  // together: whoever moves the index of the number it has read owns those parts, and knows that
  // the fields below belonged to that job when it read them.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> grain_{1};
  std::atomic<Body> body_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<int64_t> finished_{0};

  std::atomic<uint32_t> jobs_{0};  // workers wait for a change
  std::atomic<int> parked_{0};     // workers that may need waking
  std::atomic<uint32_t> bell_{0};  // the leader waits for a change
  std::atomic<bool> leader_parked_{false};
  std::atomic<bool> stopping_{false};

  std::atomic<int> urgent_{0};  // urgent commands in all queues

  // The leader's alone.
  Arbiter arbiter_;
  CommandQueue* slice_ = nullptr;  // what runs, unless it is a step
  uint64_t mark_ = 0;              // up to when the slice's time is counted
  uint64_t lent_ = 0;              // time of steps within slices

  std::mutex queues_lock_;
  std::atomic<const CommandQueue*> serving_{nullptr};  // what the leader touches
  std::vector<CommandQueue*> queues_;  // guarded by queues_lock_
  std::vector<std::thread> running_;
};

inline int Team::threads() const { return pool_->threads(); }

template <class F>
void Team::For(int64_t count, int64_t grain, const F& f) {
  pool_->RunParts(
      count, grain,
      [](const void* context, const Part& part, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) (*static_cast<const F*>(context))(part, i);
      },
      &f);
}

}  // namespace weir::kernels::cpu
