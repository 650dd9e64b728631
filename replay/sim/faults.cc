// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/faults.h"

#include <algorithm>

namespace weir::sim {
namespace {

void KillAndRestart(SimCluster* cluster, Role role, const Fault& fault) {
  const uint32_t seat = fault.seat % cluster->Seats(role);
  const InstanceId id = cluster->Seat(role, seat);
  if (id.value == 0) return;
  cluster->Kill(id);
  cluster->At(cluster->now() + fault.duration,
              [cluster, role, seat] { cluster->Restart(role, seat); });
}

// Anyone but `not_this`, by number.
InstanceId AnyOf(const SimCluster& cluster, uint32_t number, InstanceId not_this) {
  std::vector<InstanceId> all = cluster.Alive(Role::kDecode);
  for (const Role role : {Role::kPrefill, Role::kRouter}) {
    const auto more = cluster.Alive(role);
    all.insert(all.end(), more.begin(), more.end());
  }
  std::erase(all, not_this);
  return all.empty() ? InstanceId() : all[number % all.size()];
}

void ApplyToLink(SimCluster* cluster, const Fault& fault) {
  const InstanceId a = AnyOf(*cluster, fault.seat, {});
  const InstanceId b = AnyOf(*cluster, fault.other, a);
  if (a.value == 0 || b.value == 0) return;
  switch (fault.kind) {
    case FaultKind::kPartition:
      cluster->net().HoldLink(a, b, cluster->config().net.dead_after + fault.duration);
      cluster->transfer().Cut(a, b, cluster->now() + cluster->config().net.dead_after +
                                        fault.duration);
      break;
    case FaultKind::kClog:
      cluster->net().HoldLink(a, b,
                              std::min(fault.duration, cluster->config().net.dead_after / 2));
      break;
    default:
      cluster->net().DropLink(a, b);
      break;
  }
}

void ApplyToTransfer(SimCluster* cluster, const Fault& fault) {
  SimTransfer& transfer = cluster->transfer();
  const Instant until = cluster->now() + fault.duration;
  switch (fault.kind) {
    case FaultKind::kSlowTransfer:
      return transfer.Slow(static_cast<double>(20 + fault.draw % 400), until);
    case FaultKind::kCorruptTransfer:
      return transfer.CorruptNext(1 + static_cast<uint32_t>(fault.draw % 3));
    default:
      for (const InstanceId a : cluster->Alive(Role::kPrefill)) {
        for (const InstanceId b : cluster->Alive(Role::kDecode)) transfer.Cut(a, b, until);
      }
  }
}

void ApplyToDevice(SimCluster* cluster, const Fault& fault) {
  const Role role = fault.draw % 2 == 0 ? Role::kDecode : Role::kPrefill;
  const uint32_t seat = fault.seat % cluster->Seats(role);
  EngineNode* node = cluster->Engine(cluster->Seat(role, seat));
  if (node == nullptr) return;
  if (fault.kind == FaultKind::kVoidStep) return node->device().VoidNext();
  node->device().Poison();
  cluster->At(cluster->now() + fault.duration, [cluster] { cluster->Heal(); });
}

void ApplyToClients(SimCluster* cluster, const Fault& fault) {
  Random random(fault.draw, 31);
  if (fault.kind == FaultKind::kClientStorm) {
    for (ClientId id = 0; id < cluster->clients(); ++id) {
      if (!cluster->client(id).over() && random.Chance(0.4)) {
        cluster->Withdraw(id, random.Chance(0.2));
      }
    }
    return;
  }
  const ClusterConfig& config = cluster->config();
  const uint32_t room = config.blocks * config.model.block_tokens;
  for (uint64_t i = 0, count = 8 + random.Below(24); i < count; ++i) {
    RequestSpec spec;
    spec.prompt_tokens = 1 + static_cast<uint32_t>(random.Below(std::min(room / 2, 60u)));
    spec.new_tokens_max = 1 + static_cast<uint32_t>(random.Below(8));
    spec.router = static_cast<uint32_t>(random.Below(4));
    cluster->Submit(spec);
  }
}

void DrainAndRestart(SimCluster* cluster, Role role, const Fault& fault) {
  const uint32_t seat = fault.seat % cluster->Seats(role);
  const InstanceId id = cluster->Seat(role, seat);
  if (id.value == 0) return;
  cluster->Drain(id, fault.duration / 2);
  // Whoever has not left some time after the deadline is shot, as an operator would.
  cluster->At(cluster->now() + fault.duration + std::chrono::seconds(2), [cluster, id] {
    cluster->Kill(id);
    cluster->Heal();
  });
}

}  // namespace

std::string_view NameOf(FaultKind kind) {
  static constexpr std::string_view kNames[kFaultKinds] = {
      "kill prefill",     "kill decode",   "kill router",  "freeze prefill", "freeze decode",
      "partition",        "clog",          "drop link",    "slow transfer",  "corrupt transfer",
      "cut transfer",     "void step",     "poison",       "drain prefill",  "drain decode",
      "client storm",     "pressure"};
  return kNames[static_cast<int>(kind)];
}

std::vector<Fault> DrawFaults(Random* random, const ClusterConfig& config, Duration span) {
  std::vector<Fault> faults;
  const uint64_t count = 1 + random->Below(4);
  while (faults.size() < count) {
    Fault fault;
    fault.at = Instant(Duration(static_cast<int64_t>(random->Below(
        static_cast<uint64_t>(span.count())))));
    fault.kind = static_cast<FaultKind>(random->Below(kFaultKinds));
    fault.seat = static_cast<uint32_t>(random->Below(64));
    fault.other = static_cast<uint32_t>(random->Below(64));
    fault.duration = Millis(random->Between(5, 4000));
    fault.draw = random->Next();
    faults.push_back(fault);
  }
  return faults;
}

void Apply(SimCluster* cluster, const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kKillPrefill:
      return KillAndRestart(cluster, Role::kPrefill, fault);
    case FaultKind::kKillDecode:
      return KillAndRestart(cluster, Role::kDecode, fault);
    case FaultKind::kKillRouter:
      return KillAndRestart(cluster, Role::kRouter, fault);
    case FaultKind::kFreezePrefill:
    case FaultKind::kFreezeDecode: {
      const Role role =
          fault.kind == FaultKind::kFreezePrefill ? Role::kPrefill : Role::kDecode;
      // Half of them longer than a link lives.
      const Duration more = fault.draw % 2 == 0 ? cluster->config().net.dead_after : Duration(0);
      return cluster->Freeze(cluster->Seat(role, fault.seat % cluster->Seats(role)),
                             fault.duration + more);
    }
    case FaultKind::kPartition:
    case FaultKind::kClog:
    case FaultKind::kDropLink:
      return ApplyToLink(cluster, fault);
    case FaultKind::kSlowTransfer:
    case FaultKind::kCorruptTransfer:
    case FaultKind::kCutTransfer:
      return ApplyToTransfer(cluster, fault);
    case FaultKind::kVoidStep:
    case FaultKind::kPoison:
      return ApplyToDevice(cluster, fault);
    case FaultKind::kDrainPrefill:
      return DrainAndRestart(cluster, Role::kPrefill, fault);
    case FaultKind::kDrainDecode:
      return DrainAndRestart(cluster, Role::kDecode, fault);
    case FaultKind::kClientStorm:
    case FaultKind::kPressure:
      return ApplyToClients(cluster, fault);
  }
}

}  // namespace weir::sim
