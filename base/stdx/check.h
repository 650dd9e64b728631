// SPDX-License-Identifier: Apache-2.0
//
// Assertions that stay on in release builds, and probes that mark rare branches. A failed check is
// a bug of ours: it prints file, line and text and aborts, since restarting is fast and leases clean
// up behind a dead process. WEIR_REACHED("label") counts how often a rare branch was taken; tests
// and the swarm read the counts. Counting is a relaxed atomic increment and safe on any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace weir {

[[noreturn]] void CheckFailed(const char* file, int line, const char* text);

// One rare branch. Instances are static, registered at first execution and never destroyed.
class Probe {
 public:
  explicit Probe(const char* label);
  void Hit() { count_.fetch_add(1, std::memory_order_relaxed); }
  std::string_view label() const { return label_; }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  const char* label_;
  std::atomic<uint64_t> count_{0};
};

// Times the probe with this label was passed in this process; 0 if never.
uint64_t ReachedCount(std::string_view label);
// All probes passed so far with their counts, by label.
std::vector<std::pair<std::string_view, uint64_t>> ReachedProbes();

}  // namespace weir

#define WEIR_CHECK(condition)                                                       \
  (__builtin_expect(static_cast<bool>(condition), 1)                                \
       ? static_cast<void>(0)                                                       \
       : ::weir::CheckFailed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define WEIR_DCHECK(condition) static_cast<void>(sizeof(static_cast<bool>(condition)))
#else
#define WEIR_DCHECK(condition) WEIR_CHECK(condition)
#endif

#define WEIR_REACHED(label)                  \
  do {                                       \
    static ::weir::Probe weir_probe(label);  \
    weir_probe.Hit();                        \
  } while (false)
