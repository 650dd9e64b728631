// SPDX-License-Identifier: Apache-2.0
//
// Waker lets the owner of a Transfer wait for completions in a test, by the Transfer's own wake hook;
// time is only the limit after which it gives up. The hook may be called from any thread, the rest
// belongs to the Transfer's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "kvstore/transfer/transfer.h"

namespace weir::kv {

class Waker {
 public:
  std::function<void()> Hook() {
    return [this] {
      {
        std::lock_guard lock(mu_);
        ++wakes_;
      }
      ready_.notify_all();
    };
  }

  // Polls until `count` completions came, at most `limit`.
  std::vector<Completion> Await(Transfer* transfer, size_t count,
                                std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    std::vector<Completion> out;
    while (true) {
      uint64_t seen;
      {
        std::lock_guard lock(mu_);
        seen = wakes_;
      }
      transfer->Poll(&out);
      if (out.size() >= count) return out;
      std::unique_lock lock(mu_);
      if (!ready_.wait_until(lock, end, [&] { return wakes_ != seen; })) return out;
    }
  }

 private:
  std::mutex mu_;
  std::condition_variable ready_;
  uint64_t wakes_ = 0;
};

}  // namespace weir::kv
