// SPDX-License-Identifier: Apache-2.0
//
// FleetCore: which engines there are and what they agree on. A pure value of the router's core: one
// thread, no clock, nothing blocks. The first engine to register decides the geometry; one that
// differs is refused with a sentence that says in what, since KV or ids from it would be silently
// wrong. The geometry is forgotten only when nobody relies on it any more.
#pragma once

#include <optional>
#include <span>

#include "base/stdx/ids.h"
#include "base/stdx/status.h"
#include "router/fleet/fleet_view.h"

namespace weir::router {

class FleetCore {
 public:
  // Adds an instance. kBadField names what its Hello disagrees on; kQueueFull when there are too
  // many. An instance already there is replaced.
  absl::Status Register(InstanceId instance, const pb::Hello& hello);
  // False when it was not there.
  bool Lose(InstanceId instance);
  // False when the instance is unknown.
  bool Report(InstanceId instance, const pb::LoadReport& report);

  // Counts a request just given to an instance, so that a burst spreads before reports arrive.
  void Charge(InstanceId instance, uint32_t tokens);
  // What was charged is done already: a prefill engine that is quick must not count as busy until its
  // second report.
  void Discharge(InstanceId instance, uint32_t tokens);

  const FleetView& view() const { return view_; }
  FleetSnapshot Snapshot() const { return std::make_shared<const FleetView>(view_); }
  // What all engines agree on; empty before the first registered.
  const std::optional<pb::Geometry>& geometry() const { return geometry_; }
  // False when an id is none of the fleet's vocabulary. True before anybody said how large that is.
  bool InVocabulary(std::span<const TokenId> ids) const;
  // Nobody relies on the geometry: the next engine decides it anew.
  void ForgetGeometry() { geometry_.reset(); }

 private:
  InstanceView* FindMutable(InstanceId id);

  FleetView view_;
  std::optional<pb::Geometry> geometry_;
};

// Versions of the protocol that this build speaks.
inline constexpr uint32_t kProtocolMin = 1;
inline constexpr uint32_t kProtocolMax = 1;

// kBadField when the ranges of versions do not meet, the role is not an engine's or a text is longer
// than kNameBytesMax.
absl::Status CheckProtocol(const pb::Hello& hello);

}  // namespace weir::router
