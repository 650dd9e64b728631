// SPDX-License-Identifier: Apache-2.0
#include "base/runtime/loop.h"

#include <future>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/container/flat_hash_map.h"
#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir {
namespace {
constexpr Duration kBeatInterval = Millis(100);
}

struct Loop::Impl {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  // Owned by the loop's thread.
  absl::flat_hash_map<TimerId, std::unique_ptr<boost::asio::steady_timer>> timers;
  TimerId last_timer = 0;
};

Loop::Loop(Options options) : options_(std::move(options)), impl_(std::make_unique<Impl>()) {}

Loop::~Loop() {
  Stop();
  Join();
}

void Loop::Start() {
  WEIR_CHECK(!thread_.joinable());
  running_.store(true);
  thread_ = std::thread([this] { Run(); });
}

void Loop::Run() {
  running_.store(true);
  runner_.store(std::this_thread::get_id());
  Beat();
  impl_->io.run();
  runner_.store(std::thread::id());
  running_.store(false);
}

void Loop::Stop() { impl_->io.stop(); }

void Loop::Join() {
  if (!thread_.joinable()) return;
  WEIR_CHECK(!InLoop());
  thread_.join();
}

void Loop::Post(const char* name, Task task) {
  // asio asks for no copy of a handler, so a move-only task may ride in the lambda.
  boost::asio::post(impl_->io, [this, name, task = std::move(task)]() mutable {
    Scope scope(*this, name);
    task();
  });
}

void Loop::Call(const char* name, Task task) {
  if (!running()) return task();
  WEIR_CHECK(!InLoop());
  auto done = std::make_shared<std::promise<void>>();
  Post(name, [task = std::move(task), done]() mutable {
    task();
    done->set_value();
  });
  // A loop that stopped meanwhile never answers.
  auto result = done->get_future();
  while (result.wait_for(Millis(20)) != std::future_status::ready && running()) {
  }
}

Loop::TimerId Loop::At(const char* name, Instant when, Task task) {
  return After(name, when == kNever ? Duration::max() : when - Now(), std::move(task));
}

Loop::TimerId Loop::After(const char* name, Duration delay, Task task) {
  WEIR_DCHECK(InLoop() || runner_.load() == std::thread::id());
  const TimerId id = ++impl_->last_timer;
  if (delay == Duration::max()) return id;  // never
  auto timer = std::make_unique<boost::asio::steady_timer>(impl_->io, delay);
  timer->async_wait([this, id, name, task = std::move(task)](boost::system::error_code) mutable {
    // Absent when cancelled, be it after the expiry was already queued.
    if (impl_->timers.erase(id) == 0) return;
    Scope scope(*this, name);
    task();
  });
  impl_->timers.emplace(id, std::move(timer));
  return id;
}

void Loop::Cancel(TimerId timer) { impl_->timers.erase(timer); }

bool Loop::InLoop() const { return runner_.load() == std::this_thread::get_id(); }

Duration Loop::Lag() const {
  const int64_t beat = last_beat_ns_.load(std::memory_order_relaxed);
  if (beat == 0) return Duration::zero();
  const Duration lag = Now().time_since_epoch() - Duration(beat);
  return lag < kBeatInterval ? Duration::zero() : lag - kBeatInterval;
}

boost::asio::io_context& Loop::io() { return impl_->io; }

void Loop::Beat() {
  last_beat_ns_.store(Now().time_since_epoch().count(), std::memory_order_relaxed);
  After("beat", kBeatInterval, [this] { Beat(); });
}

Loop::Scope::Scope(Loop& loop, const char* name) : loop_(loop), name_(name), begin_(Now()) {}

Loop::Scope::~Scope() {
  loop_.turns_.fetch_add(1, std::memory_order_relaxed);
  const Duration took = Now() - begin_;
  if (took <= loop_.options_.stall_limit) return;
  loop_.stalls_.fetch_add(1, std::memory_order_relaxed);
  if (loop_.options_.on_stall) loop_.options_.on_stall(loop_.options_.name, name_, took);
}

}  // namespace weir
