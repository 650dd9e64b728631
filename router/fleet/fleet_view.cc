// SPDX-License-Identifier: Apache-2.0
#include "router/fleet/fleet_view.h"

#include <algorithm>

namespace weir::router {

std::string_view NameOf(Role role) { return role == Role::kPrefill ? "prefill" : "decode"; }

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

std::string FleetView::WhyNone(Role role) const {
  uint32_t draining = 0;
  for (const InstanceView& instance : instances_) {
    if (instance.role != role) continue;
    if (instance.health == Health::kReady) return {};
    ++draining;
  }
  const std::string engine = "no " + std::string(NameOf(role)) + " engine ";
  if (draining == 0) return engine + "is registered";
  return engine + "takes work (" + std::to_string(draining) +
         (draining == 1 ? " is" : " are") + " draining)";
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
