// SPDX-License-Identifier: Apache-2.0
//
// What a router knows of its engines, as a value: copied, it is an immutable snapshot that may go to
// any thread. Nothing here blocks or fails. Instances are kept in order of their id, so that two runs
// with the same events choose alike.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"
#include "proto/fleet.pb.h"

namespace weir::router {

namespace pb = ::weir::v1;

enum class Health : uint8_t {
  kReady,
  kDraining,  // finishes what it has, takes nothing new
};

// What an engine last said of itself, and what this router gave it since.
struct Load {
  uint32_t slots_total = 0;
  uint32_t slots_used = 0;
  uint64_t tokens_total = 0;  // room of the scarcer part; 0 = not known
  uint64_t tokens_used = 0;
  uint32_t queued = 0;
  uint64_t queued_tokens = 0;
  // Given since the report before the last one: a report may have been under way when a request was
  // assigned, so a charge outlives one report and dies with the second.
  uint32_t charged_requests[2] = {0, 0};
  uint64_t charged_tokens[2] = {0, 0};
  uint64_t steps = 0;

  uint32_t requests_charged() const { return charged_requests[0] + charged_requests[1]; }
  uint64_t tokens_charged() const { return charged_tokens[0] + charged_tokens[1]; }
};

struct InstanceView {
  InstanceId id;
  Role role = Role::kUnspecified;
  Health health = Health::kReady;
  std::string address;  // where its peers dial it
  std::string name;
  Load load;
  uint32_t sequence_tokens_max = 0;  // longest sequence its pools can hold; 0 = not told
};

// Of an engine's role, as in configuration and labels.
std::string_view NameOf(Role role);

class FleetView {
 public:
  const InstanceView* Find(InstanceId id) const;
  const std::vector<InstanceView>& instances() const { return instances_; }
  uint32_t CountOf(Role role) const;
  // Empty when some instance of the role takes work, else a sentence that says why none does.
  std::string WhyNone(Role role) const;
  // Longest sequence that some instance of the role can hold; 0 when there is none of the role.
  uint32_t SequenceTokensMax(Role role) const;
  // Moves whenever an instance comes, goes, or begins or ends to drain.
  uint64_t version() const { return version_; }

 private:
  friend class FleetCore;
  std::vector<InstanceView> instances_;  // by id
  uint64_t version_ = 0;
};

using FleetSnapshot = std::shared_ptr<const FleetView>;

}  // namespace weir::router
