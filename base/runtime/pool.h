// SPDX-License-Identifier: Apache-2.0
//
// Pool: a fixed number of threads that run tasks from one bounded queue. Any thread may submit;
// tasks may compute for long but own what they touch. A full queue is an answer, not a wait. After
// Close the tasks already taken are run, then the threads end.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "base/runtime/task.h"
#include "base/stdx/bounded_queue.h"

namespace weir {

class Pool {
 public:
  Pool(int threads, size_t queue_capacity);
  ~Pool();  // Close
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // False when the queue is full or the pool closed; the task is then untouched.
  [[nodiscard]] bool TryRun(Task&& task) { return queue_.TryPush(std::move(task)); }

  // Refuses new tasks, runs the queued ones and waits for the threads. Not from a pool thread.
  void Close();

  size_t queued() const { return queue_.size(); }

 private:
  void Work();

  BoundedQueue<Task> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace weir
