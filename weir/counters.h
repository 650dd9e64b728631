// SPDX-License-Identifier: Apache-2.0
//
// Counts of allocations and mutex locks of the calling thread, so that `weir bench` can prove a
// step makes none. The counting replaces operator new and pthread_mutex_lock of the program by
// forwards with one thread-local increment; builds with a sanitizer leave both alone and count 0.
#pragma once

#include <cstdint>

namespace weir {

// Of this thread, since it started.
uint64_t ThreadAllocations();
uint64_t ThreadLocks();
// False where this build cannot count.
bool CountersWork();

}  // namespace weir
