// SPDX-License-Identifier: Apache-2.0
//
// Which engines serve an attempt. A pure function of the fleet as last reported: the least work ahead
// wins, where tokens that an engine holds already are none; equals are drawn. No thread, nothing blocks; it fails with kNoCapacity where a role has no
// instance that may take the request, and the caller waits or gives up.
#pragma once

#include <span>

#include "base/stdx/ids.h"
#include "base/stdx/random.h"
#include "base/stdx/status.h"
#include "router/fleet/fleet_view.h"

namespace weir::router {

// Leading tokens of the request whose KV an engine holds.
struct PrefixHit {
  InstanceId prefill;
  uint32_t tokens = 0;
};

struct RouteInputs {
  uint32_t tokens = 0;      // to prefill in this attempt
  uint32_t tokens_max = 0;  // of the sequence when the answer is complete
  // Served the previous attempt and may still hold finished chunks: taken whenever it can be.
  InstanceId preferred_prefill{0};
  // Refused or failed the previous attempt: taken only where there is no other.
  InstanceId avoided_prefill{0};
  InstanceId avoided_decode{0};
  std::span<const PrefixHit> hits;
};

struct Route {
  InstanceId prefill;
  InstanceId decode;
  uint32_t hit_tokens = 0;  // of `tokens`, that the prefill engine holds
};

absl::StatusOr<Route> ChooseRoute(const RouteInputs& inputs, const FleetView& fleet,
                                  Random* random);

}  // namespace weir::router
