// SPDX-License-Identifier: Apache-2.0
#include "weir/counters.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/stdx/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEIR_COUNTS 0
#else
#define WEIR_COUNTS 1
#endif

namespace {
thread_local uint64_t t_allocations = 0;
thread_local uint64_t t_locks = 0;
}  // namespace

#if WEIR_COUNTS
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static std::atomic<Lock> next{nullptr};
  Lock lock = next.load(std::memory_order_relaxed);
  if (lock == nullptr) {
    lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    next.store(lock, std::memory_order_relaxed);
  }
  ++t_locks;
  return lock(mutex);
}

void* operator new(size_t size) {
  ++t_allocations;
  void* at = std::malloc(size == 0 ? 1 : size);
  WEIR_CHECK(at != nullptr);  // nobody here recovers from that
  return at;
}
void* operator new(size_t size, std::align_val_t alignment) {
  ++t_allocations;
  const auto align = static_cast<size_t>(alignment);
  void* at = std::aligned_alloc(align, (size + align - 1) / align * align);
  WEIR_CHECK(at != nullptr);
  return at;
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept { std::free(at); }
#endif

namespace weir {

uint64_t ThreadAllocations() { return t_allocations; }
uint64_t ThreadLocks() { return t_locks; }
bool CountersWork() { return WEIR_COUNTS != 0; }

}  // namespace weir
