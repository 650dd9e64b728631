// SPDX-License-Identifier: Apache-2.0
#include "router/fleet/fleet_view.h"

#include <algorithm>

namespace weir::router {

const InstanceView* FleetView::Find(InstanceId id) const {
  const auto found = std::lower_bound(
      instances_.begin(), instances_.end(), id,
      [](const InstanceView& instance, InstanceId wanted) { return instance.id < wanted; });
  return found != instances_.end() && found->id == id ? &*found : nullptr;
}

uint32_t FleetView::CountOf(Role role) const {
  uint32_t count = 0;
  for (const InstanceView& instance : instances_) count += instance.role == role ? 1 : 0;
  return count;
}

uint32_t FleetView::SequenceTokensMax(Role role) const {
  uint32_t longest = 0;
  for (const InstanceView& instance : instances_) {
    if (instance.role != role) continue;
    const uint32_t fits = instance.sequence_tokens_max;
    longest = std::max(longest, fits == 0 ? UINT32_MAX : fits);
  }
  return longest;
}

}  // namespace weir::router
