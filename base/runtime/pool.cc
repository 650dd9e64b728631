// SPDX-License-Identifier: Apache-2.0
#include "base/runtime/pool.h"

#include <chrono>

namespace weir {

Pool::Pool(int threads, size_t queue_capacity) : queue_(queue_capacity) {
  WEIR_CHECK(threads > 0);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Pool::~Pool() { Close(); }

void Pool::Close() {
  queue_.Close();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Pool::Work() {
  std::vector<Task> taken;
  for (;;) {
    // One at a time, so that a long task does not hold back a short one that another thread could
    // run. The queue is the only wait; closing wakes it.
    if (queue_.WaitSome(1, std::chrono::seconds(60), &taken) == 0) {
      if (queue_.closed()) return;
      continue;
    }
    taken.front()();
    taken.clear();
  }
}

}  // namespace weir
