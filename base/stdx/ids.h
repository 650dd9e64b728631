// SPDX-License-Identifier: Apache-2.0
//
// The identifiers that cross parts. TokenId and Position stay plain integers since kernels, wire
// and arithmetic use them everywhere; everything that is only compared is strong.
#pragma once

#include <cstdint>

#include "base/stdx/strong.h"

namespace weir {

using TokenId = int32_t;    // >= 0 and < vocabulary
using Position = uint32_t;  // index of a token in its sequence, from 0
using PageId = int32_t;     // index into one page pool; kNoPage when absent
inline constexpr PageId kNoPage = -1;

using RequestId = Strong<struct RequestIdTag, uint64_t>;    // chosen by the router, unique per router
using Attempt = Strong<struct AttemptTag, uint32_t>;        // from 1; a failure starts the next
using InstanceId = Strong<struct InstanceIdTag, uint64_t>;  // one process's life; never reused
using SlotId = Strong<struct SlotIdTag, int32_t>;           // place of a sequence on a rank
using StepId = Strong<struct StepIdTag, uint64_t>;          // from 1 on each engine
using Epoch = Strong<struct EpochTag, uint32_t>;            // version of a group's membership

// What every message about a request names. Idempotence is by this pair.
struct RequestKey {
  InstanceId router;  // whose request it is
  RequestId request;

  constexpr auto operator<=>(const RequestKey&) const = default;
  template <class H>
  friend H AbslHashValue(H state, const RequestKey& key) {
    return H::combine(std::move(state), key.router, key.request);
  }
};

enum class Role : uint8_t { kUnspecified = 0, kRouter = 1, kPrefill = 2, kDecode = 3, kVision = 4 };

}  // namespace weir
