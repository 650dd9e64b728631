// SPDX-License-Identifier: Apache-2.0
//
// RouteTransfer: the Transfer that engines use. It owns an ordered list of carriers and reads each
// region of a peer through the first one that can reach it: shared memory on the same host, the
// network otherwise. One thread makes all calls and none blocks, as in transfer.h. Nothing but
// bookkeeping happens here: limits, bounds, routes, first failure, completion.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvstore/transfer/carrier.h"
#include "kvstore/transfer/transfer.h"

namespace weir::kv {

class RouteTransfer final : public Transfer {
 public:
  // `carriers` in order of preference, at most 8, one of a kind, not yet started.
  RouteTransfer(TransferOptions options, std::vector<std::unique_ptr<Carrier>> carriers);
  ~RouteTransfer() override;

  absl::Status AddRegion(uint32_t region, Arena* arena) override;
  std::vector<std::string> Descriptors() const override;
  absl::Status AddRemote(InstanceId peer, std::span<const std::string> descriptors) override;
  void RemoveRemote(InstanceId peer) override;
  absl::StatusOr<TransferId> Post(std::span<const CopyOp> ops, Traffic traffic) override;
  void Poll(std::vector<Completion>* out) override;
  void Cancel(TransferId id) override;
  TransferStats Stats() const override;

  // How a region of a peer is reached; kPeerLost for an unknown peer, kBadField for its region.
  absl::StatusOr<RegionKind> KindOf(InstanceId peer, uint32_t region) const;

 private:
  struct RemoteRegion {
    uint32_t carrier;  // index into carriers_
    uint64_t bytes;
  };
  struct Remote {
    RemoteHandle handle = 0;
    std::vector<std::string> descriptors;
    std::map<uint32_t, RemoteRegion> regions;
  };
  struct Outstanding {
    uint32_t ops_left = 0;
    uint32_t carriers = 0;  // bit set of the carriers that have ops of it
    bool stopped = false;   // its remaining ops were told to stop
    absl::Status status;
    std::vector<InstanceId> peers;  // distinct
  };

  absl::Status CheckOp(const CopyOp& op) const;
  absl::Status AttachRegion(RemoteHandle handle, std::span<const RegionDescriptor> ways,
                            Remote* remote);
  void Fail(uint64_t id, Outstanding& transfer, const absl::Status& status);
  void Count(RegionKind kind, const CarrierDone& done);

  // Constant after construction.
  const TransferOptions options_;
  const std::vector<std::unique_ptr<Carrier>> carriers_;

  // Owned by the calling thread.
  std::map<uint32_t, Arena*> regions_;
  absl::flat_hash_map<InstanceId, Remote> remotes_;
  RemoteHandle last_handle_ = 0;
  uint64_t last_id_ = 0;
  uint32_t ops_outstanding_ = 0;
  absl::flat_hash_map<uint64_t, Outstanding> outstanding_;
  std::vector<CarrierDone> collected_;
  TransferStats stats_;
};

}  // namespace weir::kv
