// SPDX-License-Identifier: Apache-2.0
#include "engine/run/hello.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::engine {

Role RoleOf(pb::RoleKind kind) {
  switch (kind) {
    case pb::ROLE_KIND_ROUTER: return Role::kRouter;
    case pb::ROLE_KIND_PREFILL: return Role::kPrefill;
    case pb::ROLE_KIND_DECODE: return Role::kDecode;
    case pb::ROLE_KIND_VISION: return Role::kVision;
    default: return Role::kUnspecified;
  }
}

pb::RoleKind KindOf(Role role) {
  switch (role) {
    case Role::kRouter: return pb::ROLE_KIND_ROUTER;
    case Role::kPrefill: return pb::ROLE_KIND_PREFILL;
    case Role::kDecode: return pb::ROLE_KIND_DECODE;
    case Role::kVision: return pb::ROLE_KIND_VISION;
    default: return pb::ROLE_KIND_UNSPECIFIED;
  }
}

absl::Status CheckHello(const pb::Hello& hello, InstanceId self, const pb::Geometry& ours) {
  if (hello.protocol_max() < kProtocol || hello.protocol_min() > kProtocol) {
    return Error(Reason::kBadField,
                 absl::StrCat("protocol ", hello.protocol_min(), " to ", hello.protocol_max(),
                              " does not include ours, ", kProtocol),
                 "protocol_max");
  }
  if (hello.instance() == 0 || hello.instance() == self.value) {
    return Error(Reason::kBadField, "instance must be neither 0 nor the other side's", "instance");
  }
  const std::pair<const char*, size_t> texts[] = {{"name", hello.name().size()},
                                                  {"build", hello.build().size()},
                                                  {"listen_address", hello.listen_address().size()}};
  for (const auto& [field, bytes] : texts) {
    if (bytes <= kPeerNameBytesMax) continue;
    return Error(Reason::kBadField,
                 absl::StrCat(field, " must be at most ", kPeerNameBytesMax, " bytes long"), field);
  }
  if (RoleOf(hello.role()) == Role::kUnspecified) {
    return Error(Reason::kBadField, absl::StrCat("role ", hello.role(), " is not known here"),
                 "role");
  }
  if (hello.role() == pb::ROLE_KIND_ROUTER) return absl::OkStatus();
  const pb::Geometry& theirs = hello.geometry();
  if (theirs.model_digest() != ours.model_digest()) {
    return Error(Reason::kBadField, "the peer serves another checkpoint", "geometry.model_digest");
  }
  if (theirs.layout_digest() != ours.layout_digest()) {
    return Error(Reason::kBadField, "the peer lays its KV out differently",
                 "geometry.layout_digest");
  }
  return absl::OkStatus();
}

}  // namespace weir::engine
