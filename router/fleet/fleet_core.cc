// SPDX-License-Identifier: Apache-2.0
#include "router/fleet/fleet_core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/stdx/hash.h"
#include "router/limits.h"

namespace weir::router {
namespace {

Role RoleOf(pb::RoleKind kind) {
  switch (kind) {
    case pb::ROLE_KIND_PREFILL:
      return Role::kPrefill;
    case pb::ROLE_KIND_DECODE:
      return Role::kDecode;
    default:
      return Role::kUnspecified;
  }
}

std::string ShortHex(const std::string& digest) {
  const std::string hex =
      HexOf(std::span(reinterpret_cast<const uint8_t*>(digest.data()), digest.size()));
  return hex.empty() ? "none" : hex.substr(0, 12);
}

absl::Status Differs(std::string_view what, const std::string& fleet, const std::string& theirs) {
  return Error(Reason::kBadField,
               std::string("this engine's ") + std::string(what) + " is " + theirs +
                   " but the engines already here have " + fleet +
                   "; start it with the same checkpoint and settings",
               std::string("geometry.") + std::string(what));
}

absl::Status CheckAgrees(const pb::Geometry& fleet, const pb::Geometry& theirs) {
  if (fleet.model() != theirs.model()) return Differs("model", fleet.model(), theirs.model());
  if (fleet.model_digest() != theirs.model_digest()) {
    return Differs("model_digest", ShortHex(fleet.model_digest()), ShortHex(theirs.model_digest()));
  }
  if (fleet.layout_digest() != theirs.layout_digest()) {
    return Differs("layout_digest", ShortHex(fleet.layout_digest()),
                   ShortHex(theirs.layout_digest()));
  }
  // An engine without a tokenizer has no digest and no opinion.
  if (!fleet.tokenizer_digest().empty() && !theirs.tokenizer_digest().empty() &&
      fleet.tokenizer_digest() != theirs.tokenizer_digest()) {
    return Differs("tokenizer_digest", ShortHex(fleet.tokenizer_digest()),
                   ShortHex(theirs.tokenizer_digest()));
  }
  const struct {
    std::string_view name;
    uint32_t fleet;
    uint32_t theirs;
  } numbers[] = {
      {"block_tokens", fleet.block_tokens(), theirs.block_tokens()},
      {"vocab", fleet.vocab(), theirs.vocab()},
      {"positions_max", fleet.positions_max(), theirs.positions_max()},
      {"decoder_tail_rows", fleet.decoder_tail_rows(), theirs.decoder_tail_rows()},
  };
  for (const auto& number : numbers) {
    if (number.fleet != number.theirs) {
      return Differs(number.name, std::to_string(number.fleet), std::to_string(number.theirs));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FleetCore::Register(InstanceId instance, const pb::Hello& hello) {
  const Role role = RoleOf(hello.role());
  if (role == Role::kUnspecified) {
    return Error(Reason::kBadField, "only prefill and decode engines register with a router",
                 "role");
  }
  if (instance.value == 0) {
    return Error(Reason::kBadField, "an engine's instance may not be 0", "instance");
  }
  if (geometry_) WEIR_TRY(CheckAgrees(*geometry_, hello.geometry()));
  Lose(instance);
  if (view_.instances_.size() >= kInstancesMax) {
    return Error(Reason::kQueueFull,
                 "this router knows " + std::to_string(kInstancesMax) + " engines and takes no more");
  }
  if (!geometry_) {
    geometry_ = hello.geometry();
  } else if (geometry_->tokenizer_digest().empty()) {
    geometry_->set_tokenizer_digest(hello.geometry().tokenizer_digest());
  }
  InstanceView view;
  view.id = instance;
  view.role = role;
  view.address = hello.listen_address();
  view.name = hello.name();
  view.sequence_tokens_max = hello.geometry().sequence_tokens_max();
  const auto place = std::lower_bound(
      view_.instances_.begin(), view_.instances_.end(), instance,
      [](const InstanceView& other, InstanceId wanted) { return other.id < wanted; });
  view_.instances_.insert(place, std::move(view));
  view_.version_ += 1;
  return absl::OkStatus();
}

bool FleetCore::InVocabulary(std::span<const TokenId> ids) const {
  if (!geometry_ || geometry_->vocab() == 0) return true;
  const auto vocab = static_cast<int64_t>(geometry_->vocab());
  return std::all_of(ids.begin(), ids.end(),
                     [vocab](TokenId id) { return id >= 0 && id < vocab; });
}

bool FleetCore::Lose(InstanceId instance) {
  const size_t erased = std::erase_if(
      view_.instances_, [instance](const InstanceView& view) { return view.id == instance; });
  view_.version_ += erased;
  return erased > 0;
}

bool FleetCore::Report(InstanceId instance, const pb::LoadReport& report) {
  InstanceView* view = FindMutable(instance);
  if (view == nullptr) return false;
  const Health health = report.draining() ? Health::kDraining : Health::kReady;
  if (std::exchange(view->health, health) != health) view_.version_ += 1;
  const uint64_t block = std::max<uint32_t>(geometry_ ? geometry_->block_tokens() : 1, 1);
  Load& load = view->load;
  load.slots_total = report.slots_total();
  load.slots_used = report.slots_used();
  load.tokens_total = report.pages_total() * block;
  load.tokens_used = report.pages_used() * block;
  load.queued = report.queued();
  load.queued_tokens = report.queued_tokens();
  load.steps = report.steps();
  load.charged_requests[1] = load.charged_requests[0];
  load.charged_tokens[1] = load.charged_tokens[0];
  load.charged_requests[0] = 0;
  load.charged_tokens[0] = 0;
  return true;
}

void FleetCore::Charge(InstanceId instance, uint32_t tokens) {
  InstanceView* view = FindMutable(instance);
  if (view == nullptr) return;
  view->load.charged_requests[0] += 1;
  view->load.charged_tokens[0] += tokens;
}

void FleetCore::Discharge(InstanceId instance, uint32_t tokens) {
  InstanceView* view = FindMutable(instance);
  if (view == nullptr) return;
  uint64_t left = tokens;
  for (const int i : {1, 0}) {  // the older charges first
    const uint64_t done = std::min(left, view->load.charged_tokens[i]);
    view->load.charged_tokens[i] -= done;
    left -= done;
  }
}

InstanceView* FleetCore::FindMutable(InstanceId id) {
  return const_cast<InstanceView*>(view_.Find(id));
}

absl::Status CheckProtocol(const pb::Hello& hello) {
  if (hello.protocol_min() > kProtocolMax || hello.protocol_max() < kProtocolMin) {
    return Error(Reason::kBadField,
                 "this router speaks protocol " + std::to_string(kProtocolMin) + " to " +
                     std::to_string(kProtocolMax) + " but the engine speaks " +
                     std::to_string(hello.protocol_min()) + " to " +
                     std::to_string(hello.protocol_max()) + "; run builds that are closer",
                 "protocol_max");
  }
  if (RoleOf(hello.role()) == Role::kUnspecified) {
    return Error(Reason::kBadField, "only prefill and decode engines register with a router",
                 "role");
  }
  const std::pair<const char*, size_t> texts[] = {{"name", hello.name().size()},
                                                  {"build", hello.build().size()},
                                                  {"listen_address", hello.listen_address().size()},
                                                  {"geometry.model", hello.geometry().model().size()}};
  for (const auto& [field, bytes] : texts) {
    if (bytes <= kNameBytesMax) continue;
    return Error(Reason::kBadField,
                 std::string(field) + " must be at most " + std::to_string(kNameBytesMax) +
                     " bytes long",
                 field);
  }
  return absl::OkStatus();
}

}  // namespace weir::router
