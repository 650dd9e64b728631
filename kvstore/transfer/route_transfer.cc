// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/route_transfer.h"

#include <algorithm>
#include <utility>

namespace weir::kv {
namespace {

constexpr size_t kCarriersMax = 8;

std::string Named(std::string_view what, uint64_t number) {
  return std::string(what) + " " + std::to_string(number);
}

}  // namespace

RouteTransfer::RouteTransfer(TransferOptions options,
                             std::vector<std::unique_ptr<Carrier>> carriers)
    : options_(std::move(options)), carriers_(std::move(carriers)) {
  WEIR_CHECK(!carriers_.empty() && carriers_.size() <= kCarriersMax);
  const CarrierLimits limits{.ops_max = options_.limits.ops_max,
                             .transfers_max = options_.limits.transfers_max,
                             .remotes_max = options_.limits.remotes_max,
                             .regions_max = options_.limits.regions_max};
  for (const auto& carrier : carriers_) carrier->Start(limits, options_.wake);
}

RouteTransfer::~RouteTransfer() = default;

absl::Status RouteTransfer::AddRegion(uint32_t region, Arena* arena) {
  if (regions_.contains(region)) {
    return Error(Reason::kBadField, Named("there is already a region", region), "region");
  }
  if (regions_.size() >= options_.limits.regions_max) {
    return Error(Reason::kQueueFull, "no more regions fit", "region");
  }
  for (const auto& carrier : carriers_) WEIR_TRY(carrier->AddRegion(region, arena));
  regions_.emplace(region, arena);
  return absl::OkStatus();
}

std::vector<std::string> RouteTransfer::Descriptors() const {
  std::vector<std::string> out;
  for (const auto& [region, arena] : regions_) {
    for (const auto& carrier : carriers_) {
      std::string bytes = carrier->Describe(region);
      if (!bytes.empty()) out.push_back(std::move(bytes));
    }
  }
  return out;
}

absl::Status RouteTransfer::AddRemote(InstanceId peer, std::span<const std::string> descriptors) {
  if (auto found = remotes_.find(peer); found != remotes_.end()) {
    if (std::ranges::equal(found->second.descriptors, descriptors)) return absl::OkStatus();
    return Error(Reason::kBadField, "the peer is known with other regions", "regions");
  }
  if (remotes_.size() >= options_.limits.remotes_max) {
    return Error(Reason::kQueueFull, "no more peers fit", "instance");
  }
  if (descriptors.size() > size_t{options_.limits.regions_max} * kCarriersMax) {
    return Error(Reason::kBadField, "the peer has too many regions", "regions");
  }
  std::map<uint32_t, std::vector<RegionDescriptor>> ways;
  for (const std::string& bytes : descriptors) {
    WEIR_ASSIGN(RegionDescriptor descriptor, ParseRegionDescriptor(bytes));
    ways[descriptor.region].push_back(std::move(descriptor));
  }
  Remote remote;
  remote.handle = ++last_handle_;
  remote.descriptors.assign(descriptors.begin(), descriptors.end());
  for (const auto& [region, list] : ways) {
    if (absl::Status status = AttachRegion(remote.handle, list, &remote); !status.ok()) {
      for (const auto& carrier : carriers_) carrier->Detach(remote.handle);
      return status;
    }
  }
  remotes_.emplace(peer, std::move(remote));
  return absl::OkStatus();
}

absl::Status RouteTransfer::AttachRegion(RemoteHandle handle,
                                         std::span<const RegionDescriptor> ways, Remote* remote) {
  absl::Status why = Error(Reason::kPeerLost, "the peer offers no way that we have", "regions");
  for (uint32_t i = 0; i < carriers_.size(); ++i) {
    for (const RegionDescriptor& way : ways) {
      if (way.kind != carriers_[i]->kind()) continue;
      absl::Status status = carriers_[i]->Attach(handle, way);
      if (status.ok()) {
        remote->regions.emplace(way.region, RemoteRegion{i, way.bytes});
        return status;
      }
      WEIR_REACHED("transfer: a preferred way to a peer does not work");
      why = std::move(status);
    }
  }
  return why;
}

void RouteTransfer::RemoveRemote(InstanceId peer) {
  auto found = remotes_.find(peer);
  if (found == remotes_.end()) return;
  const RemoteHandle handle = found->second.handle;
  remotes_.erase(found);
  for (auto& [id, transfer] : outstanding_) {
    if (std::ranges::find(transfer.peers, peer) == transfer.peers.end()) continue;
    Fail(id, transfer, Error(Reason::kPeerLost, "the peer was removed"));
  }
  for (const auto& carrier : carriers_) carrier->Detach(handle);
}

absl::Status RouteTransfer::CheckOp(const CopyOp& op) const {
  if (op.bytes == 0 || op.bytes > options_.limits.op_bytes_max) {
    return Error(Reason::kBadField, "a read is empty or too large", "bytes");
  }
  auto local = regions_.find(op.local_region);
  if (local == regions_.end()) {
    return Error(Reason::kBadField, Named("we have no region", op.local_region), "local_region");
  }
  if (op.local_offset > local->second->bytes() ||
      op.bytes > local->second->bytes() - op.local_offset) {
    return Error(Reason::kBadField, Named("the read reaches beyond our region", op.local_region),
                 "local_offset");
  }
  auto remote = remotes_.find(op.from);
  if (remote == remotes_.end()) return Error(Reason::kPeerLost, "the peer is not known", "from");
  auto region = remote->second.regions.find(op.remote_region);
  if (region == remote->second.regions.end()) {
    return Error(Reason::kBadField, Named("the peer has no region", op.remote_region),
                 "remote_region");
  }
  if (op.remote_offset > region->second.bytes ||
      op.bytes > region->second.bytes - op.remote_offset) {
    return Error(Reason::kBadField,
                 Named("the read reaches beyond the peer's region", op.remote_region),
                 "remote_offset");
  }
  return absl::OkStatus();
}

absl::StatusOr<TransferId> RouteTransfer::Post(std::span<const CopyOp> ops, Traffic traffic) {
  const TransferLimits& limits = options_.limits;
  if (ops.empty() || ops.size() > limits.ops_per_post_max) {
    return Error(Reason::kBadField, "a transfer has no reads or too many", "ops");
  }
  if (outstanding_.size() >= limits.transfers_max ||
      ops.size() > limits.ops_max - ops_outstanding_) {
    WEIR_REACHED("transfer: full");
    return Error(Reason::kQueueFull, "too many reads are under way");
  }
  for (const CopyOp& op : ops) WEIR_TRY(CheckOp(op));

  const uint64_t id = ++last_id_;
  Outstanding transfer;
  transfer.ops_left = static_cast<uint32_t>(ops.size());
  for (const CopyOp& op : ops) {
    const Remote& remote = remotes_.find(op.from)->second;
    const RemoteRegion& region = remote.regions.find(op.remote_region)->second;
    if (std::ranges::find(transfer.peers, op.from) == transfer.peers.end()) {
      transfer.peers.push_back(op.from);
    }
    transfer.carriers |= 1u << region.carrier;
    CarrierOp read;
    read.transfer = id;
    read.remote = remote.handle;
    read.region = op.remote_region;
    read.offset = op.remote_offset;
    read.to = regions_.find(op.local_region)->second->data() + op.local_offset;
    read.bytes = op.bytes;
    read.crc32c = op.crc32c;
    read.traffic = traffic;
    carriers_[region.carrier]->Read(read);
  }
  ops_outstanding_ += transfer.ops_left;
  outstanding_.emplace(id, std::move(transfer));
  ++stats_.posted;
  return TransferId(id);
}

void RouteTransfer::Fail(uint64_t id, Outstanding& transfer, const absl::Status& status) {
  if (transfer.status.ok()) transfer.status = status;
  if (transfer.stopped) return;
  transfer.stopped = true;
  for (uint32_t i = 0; i < carriers_.size(); ++i) {
    if ((transfer.carriers >> i & 1u) != 0) carriers_[i]->Cancel(id);
  }
}

void RouteTransfer::Cancel(TransferId id) {
  auto found = outstanding_.find(id.value);
  if (found == outstanding_.end()) return;
  Fail(id.value, found->second, Error(Reason::kCancelled, "the transfer was cancelled"));
}

void RouteTransfer::Poll(std::vector<Completion>* out) {
  for (const auto& carrier : carriers_) {
    collected_.clear();
    carrier->Collect(&collected_);
    for (const CarrierDone& done : collected_) {
      auto found = outstanding_.find(done.transfer);
      WEIR_CHECK(found != outstanding_.end());  // a carrier reports each op once
      Outstanding& transfer = found->second;
      Count(carrier->kind(), done);
      --ops_outstanding_;
      --transfer.ops_left;
      if (!done.status.ok() && transfer.ops_left > 0) Fail(done.transfer, transfer, done.status);
      if (!done.status.ok() && transfer.status.ok()) transfer.status = done.status;
      if (transfer.ops_left > 0) continue;
      ++(transfer.status.ok() ? stats_.completed : stats_.failed);
      out->push_back({TransferId(done.transfer), std::move(transfer.status)});
      outstanding_.erase(found);
    }
  }
}

void RouteTransfer::Count(RegionKind kind, const CarrierDone& done) {
  if (!done.status.ok()) return;
  switch (kind) {
    case RegionKind::kMem:
      stats_.bytes_mem += done.bytes;
      return;
    case RegionKind::kShm:
      stats_.bytes_shm += done.bytes;
      return;
    case RegionKind::kUcx:
      stats_.bytes_ucx += done.bytes;
      return;
  }
}

TransferStats RouteTransfer::Stats() const {
  TransferStats stats = stats_;
  stats.outstanding = static_cast<uint32_t>(outstanding_.size());
  return stats;
}

absl::StatusOr<RegionKind> RouteTransfer::KindOf(InstanceId peer, uint32_t region) const {
  auto remote = remotes_.find(peer);
  if (remote == remotes_.end()) return Error(Reason::kPeerLost, "the peer is not known", "from");
  auto found = remote->second.regions.find(region);
  if (found == remote->second.regions.end()) {
    return Error(Reason::kBadField, Named("the peer has no region", region), "remote_region");
  }
  return carriers_[found->second.carrier]->kind();
}

}  // namespace weir::kv
