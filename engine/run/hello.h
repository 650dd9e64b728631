// SPDX-License-Identifier: Apache-2.0
//
// What an engine accepts as a peer's first words. Pure functions, any thread. What a peer sent is not
// trusted: a refusal names the field.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stdx/ids.h"
#include "base/stdx/status.h"
#include "proto/peer.pb.h"

namespace weir::engine {

namespace pb = ::weir::v1;

inline constexpr uint32_t kProtocol = 1;  // proto/README: raised when a peer must understand more
// A peer's name, build and address, each: they go into the log and into other messages.
inline constexpr size_t kPeerNameBytesMax = 512;

// kUnspecified for a kind that this build does not know.
Role RoleOf(pb::RoleKind kind);
pb::RoleKind KindOf(Role role);

// Whether the instance `ours` with `geometry` may talk to who says this.
absl::Status CheckHello(const pb::Hello& hello, InstanceId ours, const pb::Geometry& geometry);

}  // namespace weir::engine
