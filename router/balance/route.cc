// SPDX-License-Identifier: Apache-2.0
#include "router/balance/route.h"

#include <algorithm>
#include <string>

namespace weir::router {
namespace {

// Lower is better. Share of what the engine has, since instances need not be equally large; the
// scarcer of slots and room decides. Above 1 the request would queue.
double DecodeScore(const Load& load, uint32_t tokens_max) {
  const double slots = static_cast<double>(load.slots_used) + load.queued + load.requests_charged();
  const double slot_share = slots / std::max<uint32_t>(load.slots_total, 1);
  if (load.tokens_total == 0) return slot_share;
  const double tokens = static_cast<double>(load.tokens_used + load.queued_tokens) +
                        static_cast<double>(load.tokens_charged()) + tokens_max;
  return std::max(slot_share, tokens / static_cast<double>(load.tokens_total));
}

uint32_t HitOf(const RouteInputs& inputs, InstanceId id) {
  for (const PrefixHit& hit : inputs.hits) {
    if (hit.prefill == id) return std::min(hit.tokens, inputs.tokens);
  }
  return 0;
}

// Tokens to compute until the request's first; an engine computes them one after the other.
double PrefillScore(const RouteInputs& inputs, const InstanceView& instance) {
  return static_cast<double>(instance.load.queued_tokens + instance.load.tokens_charged()) +
         inputs.tokens - HitOf(inputs, instance.id);
}

bool MayTake(const InstanceView& instance, Role role, uint32_t tokens_max) {
  return instance.role == role && instance.health == Health::kReady &&
         (instance.sequence_tokens_max == 0 || instance.sequence_tokens_max >= tokens_max);
}

InstanceId ChooseLeastLoaded(const RouteInputs& inputs, const FleetView& fleet, Role role,
                             InstanceId avoided, Random* random) {
  InstanceId best{0};
  double best_score = 0;
  uint64_t equals = 0;
  for (const InstanceView& instance : fleet.instances()) {
    if (!MayTake(instance, role, inputs.tokens_max) || instance.id == avoided) continue;
    const double score = role == Role::kDecode ? DecodeScore(instance.load, inputs.tokens_max)
                                               : PrefillScore(inputs, instance);
    if (best.value == 0 || score < best_score) {
      best = instance.id;
      best_score = score;
      equals = 1;
    } else if (score == best_score && random->Below(++equals) == 0) {
      best = instance.id;
    }
  }
  if (best.value != 0 || avoided.value == 0) return best;
  const InstanceView* last_resort = fleet.Find(avoided);
  return last_resort != nullptr && MayTake(*last_resort, role, inputs.tokens_max) ? avoided : best;
}

}  // namespace

absl::StatusOr<Route> ChooseRoute(const RouteInputs& inputs, const FleetView& fleet,
                                  Random* random) {
  Route route;
  route.decode =
      ChooseLeastLoaded(inputs, fleet, Role::kDecode, inputs.avoided_decode, random);
  const InstanceView* preferred = fleet.Find(inputs.preferred_prefill);
  if (preferred != nullptr && MayTake(*preferred, Role::kPrefill, inputs.tokens_max) &&
      preferred->id != inputs.avoided_prefill) {
    route.prefill = preferred->id;
  } else {
    route.prefill =
        ChooseLeastLoaded(inputs, fleet, Role::kPrefill, inputs.avoided_prefill, random);
  }
  route.hit_tokens = HitOf(inputs, route.prefill);
  if (route.prefill.value != 0 && route.decode.value != 0) return route;
  const Role lacking = route.decode.value == 0 ? Role::kDecode : Role::kPrefill;
  std::string why = fleet.WhyNone(lacking);
  if (why.empty()) {
    why = "no " + std::string(NameOf(lacking)) + " engine that takes work can hold " +
          std::to_string(inputs.tokens_max) + " tokens";
  }
  return Error(Reason::kNoCapacity, why);
}

}  // namespace weir::router
