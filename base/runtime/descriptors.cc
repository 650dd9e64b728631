// SPDX-License-Identifier: Apache-2.0
#include "base/runtime/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace weir {
namespace {

constexpr rlim_t kDescriptorsMax = rlim_t{1} << 20;
constexpr uint64_t kOthers = 64;

}  // namespace

uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kDescriptorsMax;
  rlimit raised = limit;
  raised.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kDescriptorsMax));
  if (raised.rlim_cur == limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &raised) != 0) {
    return limit.rlim_cur;
  }
  return raised.rlim_cur;
}

uint32_t ConnectionsWithin(uint64_t descriptors, uint32_t wanted) {
  const uint64_t left = descriptors > kOthers ? descriptors - kOthers : 1;
  return static_cast<uint32_t>(std::min<uint64_t>(left, wanted));
}

}  // namespace weir
