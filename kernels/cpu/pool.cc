// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir::kernels::cpu {
namespace {

// Some tens of microseconds of pauses, then a turn for whoever else wants the core, then sleep.
constexpr int kPauses = 2000;
constexpr int kYields = 4;
// How long a step may pause between two of its commands: they are pushed while it runs.
constexpr int kStepPauses = 200;

// The lower half of a ticket; as an index, more than any count.
constexpr uint64_t kNoIndex = 0xffffffffu;

inline void Pause() { __builtin_ia32_pause(); }

// True as soon as `ready` is, false when it is time to park.
template <class Ready>
bool SpinUntil(const Ready& ready) {
  for (int i = 0; i < kPauses; ++i) {
    if (ready()) return true;
    Pause();
  }
  for (int i = 0; i < kYields; ++i) {
    sched_yield();
    if (ready()) return true;
  }
  return false;
}

int CoresOfThisProcess() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::byte* TakeScratch(int threads) {
  const size_t bytes = 2 * kSharedScratch + static_cast<size_t>(threads) * kThreadScratch;
  void* at = std::aligned_alloc(4096, bytes);
  WEIR_CHECK(at != nullptr);
  return static_cast<std::byte*>(at);
}

}  // namespace

CommandQueue::CommandQueue(ComputePool* pool)
    : pool_(pool), commands_(std::make_unique<Command[]>(kCapacity)) {
  const std::lock_guard lock(pool_->queues_lock_);
  // Starts level with the others: time it was not there for is not owed to it.
  uint64_t most = 0;
  for (const CommandQueue* other : pool_->queues_) most = std::max(most, other->spent_.load());
  spent_.store(most);
  pool_->queues_.push_back(this);
}

CommandQueue::~CommandQueue() {
  Wait(pushed_local_);
  {
    const std::lock_guard lock(pool_->queues_lock_);
    std::erase(pool_->queues_, this);
  }
  // The leader may still be about to wake somebody through this object.
  while (pool_->serving_.load() == this) Pause();
}

void CommandQueue::PushBytes(Run run, const void* arguments, size_t bytes) {
  if (pushed_local_ >= kCapacity) Wait(pushed_local_ - kCapacity + 1);
  Command& command = commands_[pushed_local_ % kCapacity];
  command.run = run;
  command.urgent = urgent_local_;
  if (urgent_local_) {
    urgent_.fetch_add(1);
    pool_->urgent_.fetch_add(1);
  }
  std::memcpy(command.arguments, arguments, bytes);
  pushed_.store(++pushed_local_, std::memory_order_release);
  pool_->Ring();
}

void CommandQueue::Wait(uint64_t count) {
  if (SpinUntil([&] { return Done(count); })) return;
  waiting_.fetch_add(1);
  for (;;) {
    const uint64_t done = done_.load();
    if (done >= count) break;
    done_.wait(done);
  }
  waiting_.fetch_sub(1);
}

uint64_t ComputePool::SteadyClock() {
  return static_cast<uint64_t>(Now().time_since_epoch().count());
}

ComputePool::ComputePool(int threads, Clock clock)
    : threads_(threads > 0 ? threads : CoresOfThisProcess()),
      clock_(clock),
      scratch_(TakeScratch(threads_), [](std::byte* at) { std::free(at); }) {
  running_.emplace_back([this] { Lead(); });
  for (int i = 1; i < threads_; ++i) running_.emplace_back([this, i] { Work(i); });
}

ComputePool::~ComputePool() {
  {
    const std::lock_guard lock(queues_lock_);
    WEIR_CHECK(queues_.empty());
  }
  stopping_.store(true);
  bell_.fetch_add(1);
  bell_.notify_all();
  jobs_.fetch_add(1);
  jobs_.notify_all();
  for (std::thread& thread : running_) thread.join();
}

void ComputePool::Ring() {
  bell_.fetch_add(1);
  if (leader_parked_.load()) bell_.notify_all();
}

void ComputePool::Lead() {
  for (;;) {
    const uint32_t heard = bell_.load();
    if (RunOneCommand()) continue;
    if (stopping_.load()) return;
    if (SpinUntil([&] { return bell_.load(std::memory_order_relaxed) != heard; })) continue;
    leader_parked_.store(true);
    bell_.wait(heard);
    leader_parked_.store(false);
  }
}

std::byte* ComputePool::SharedScratch(int level) const {
  return scratch_.get() + static_cast<size_t>(level) * kSharedScratch;
}

Team::Part ComputePool::PartOf(int thread) const {
  return {thread, SharedScratch(2) + static_cast<size_t>(thread) * kThreadScratch};
}

CommandQueue* ComputePool::Take(CommandQueue* outer) {
  for (int i = 0; i < kStepPauses && arbiter_.in_step() && urgent_.load() == 0; ++i) Pause();
  const std::lock_guard lock(queues_lock_);
  CommandQueue* step = nullptr;
  CommandQueue* slice = nullptr;
  for (CommandQueue* queue : queues_) {
    const uint64_t done = queue->done_.load(std::memory_order_relaxed);
    if (queue == outer || queue->pushed_.load(std::memory_order_acquire) == done) continue;
    CommandQueue*& best = queue->urgent_.load() > 0 ? step : slice;
    if (best == nullptr || queue->spent_ < best->spent_) best = queue;
  }
  const Arbiter::Grant grant =
      arbiter_.Next(step != nullptr, slice != nullptr || outer != nullptr);
  CommandQueue* next = nullptr;
  if (grant == Arbiter::Grant::kStep) next = step;
  if (grant == Arbiter::Grant::kSlice && outer == nullptr) next = slice_ = slice;
  serving_.store(next != nullptr ? next : outer);
  return next;
}

bool ComputePool::RunOneCommand() {
  CommandQueue* next = Take(nullptr);
  if (next == nullptr) return false;
  mark_ = clock_();
  Run(next, SharedScratch(0));
  slice_ = nullptr;
  serving_.store(nullptr);
  return true;
}

void ComputePool::Run(CommandQueue* queue, std::byte* shared) {
  const uint64_t done = queue->done_.load(std::memory_order_relaxed);
  const CommandQueue::Command& command = queue->commands_[done % CommandQueue::kCapacity];
  const uint64_t began = clock_();
  const uint64_t lent = lent_;
  Team team(this, shared);
  command.run(team, command.arguments);
  const uint64_t ended = clock_();
  if (slice_ != nullptr) arbiter_.Sliced(ended - mark_);
  queue->spent_.fetch_add(ended - began - (lent_ - lent), std::memory_order_relaxed);
  if (command.urgent) {
    queue->urgent_.fetch_sub(1);
    urgent_.fetch_sub(1);
  }
  queue->done_.store(done + 1);
  if (queue->waiting_.load() > 0) queue->done_.notify_all();
}

bool ComputePool::GivesWay() {
  if (slice_ == nullptr || urgent_.load(std::memory_order_relaxed) == 0) return false;
  const uint64_t now = clock_();
  arbiter_.Sliced(now - mark_);
  mark_ = now;
  return arbiter_.SliceEnds();
}

void ComputePool::RunStep() {
  WEIR_REACHED("compute: a slice gives way to a step");
  const uint64_t began = clock_();
  CommandQueue* const outer = slice_;
  slice_ = nullptr;
  while (CommandQueue* step = Take(outer)) Run(step, SharedScratch(1));
  slice_ = outer;
  mark_ = clock_();
  lent_ += mark_ - began;
}

void ComputePool::RunParts(int64_t count, int64_t grain, Body body, const void* context) {
  WEIR_CHECK(count < int64_t{1} << 31);
  const bool alone = threads_ == 1 || count <= grain;
  for (int64_t from = 0; from < count;) {
    if (alone) {
      const int64_t end = std::min(from + grain, count);
      body(context, PartOf(0), from, end);
      from = end;
    } else {
      from = RunJob(from, count, grain, body, context);
    }
    if (from < count && GivesWay()) RunStep();
  }
}

int64_t ComputePool::RunJob(int64_t from, int64_t count, int64_t grain, Body body,
                            const void* context) {
  // First a ticket that nobody can draw: whoever sees one of the new fields sees it too.
  const uint64_t number = ((ticket_.load(std::memory_order_relaxed) >> 32) + 1) << 32;
  ticket_.store(number | kNoIndex, std::memory_order_relaxed);
  count_.store(count, std::memory_order_release);
  grain_.store(grain, std::memory_order_release);
  body_.store(body, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  finished_.store(from, std::memory_order_relaxed);
  ticket_.store(number | static_cast<uint64_t>(from), std::memory_order_release);
  jobs_.fetch_add(1);
  if (parked_.load() > 0) jobs_.notify_all();
  const int64_t end = TakeParts(0);
  // What is left is in the hands of threads that run, or that the system has set aside.
  while (!SpinUntil([&] { return finished_.load(std::memory_order_acquire) == end; })) {
    sched_yield();
  }
  return end;
}

int64_t ComputePool::TakeParts(int thread) {
  const Team::Part part = PartOf(thread);
  bool took = false;
  for (;;) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    const int64_t count = count_.load(std::memory_order_acquire);
    const int64_t grain = grain_.load(std::memory_order_acquire);
    const Body body = body_.load(std::memory_order_acquire);
    const void* context = context_.load(std::memory_order_acquire);
    const auto begin = static_cast<int64_t>(ticket & kNoIndex);
    if (begin >= count) return count;
    // Not before a part of its own: a slice always gets on.
    const bool stops = thread == 0 && took && GivesWay();
    const int64_t end = stops ? count : std::min(begin + grain, count);
    const uint64_t moved = (ticket & ~kNoIndex) | static_cast<uint64_t>(end);
    if (!ticket_.compare_exchange_strong(ticket, moved, std::memory_order_acq_rel)) continue;
    if (stops) return begin;
    took = true;
    body(context, part, begin, end);
    finished_.fetch_add(end - begin, std::memory_order_acq_rel);
  }
}

void ComputePool::Work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    const auto changed = [&] { return jobs_.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(changed)) {
      parked_.fetch_add(1);
      while (!changed()) jobs_.wait(seen);
      parked_.fetch_sub(1);
    }
    seen = jobs_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    TakeParts(thread);
  }
}

}  // namespace weir::kernels::cpu
