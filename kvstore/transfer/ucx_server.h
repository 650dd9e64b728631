// SPDX-License-Identifier: Apache-2.0
//
// UcxServer: the owner's side of UcxCarrier. It accepts readers, checks what they ask for against
// token and bounds, and sends the bytes or the reason of a refusal. Everything runs on the carrier's
// progress thread and nothing blocks. It owns the endpoints of the peers that read from us; memory is
// borrowed. Requests are hostile bytes: a wrong one is refused, a malformed one ends its peer.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvstore/transfer/ucx_context.h"

namespace weir::kv {

class UcxServer {
 public:
  UcxServer(UcxContext* ucx, const UcxOptions& options);
  ~UcxServer();

  void AddRegion(uint32_t region, std::span<const std::byte> memory, const RegionToken& token);
  // Accepts, and answers what came in. Called after new regions were taken in: a peer may ask for a
  // region as soon as its descriptor left.
  void Serve();
  // Once per ping interval: closes peers that were silent too often or failed.
  void Tick();

 private:
  struct Region {
    std::span<const std::byte> memory;
    RegionToken token;
  };
  struct Served {
    std::unique_ptr<UcxPeer> peer;
    bool heard = true;
    bool broken = false;
    uint32_t misses = 0;
    uint32_t sends = 0;
  };
  struct Request {
    ucp_ep_h from;
    UcxReadRequest read;
  };

  static ucs_status_t OnPing(void* arg, const void* header, size_t header_bytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t OnRead(void* arg, const void* header, size_t header_bytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* param);
  Served* Find(const ucp_am_recv_param_t* param);
  void Answer(const Request& request);
  Reason Check(const Served& served, const UcxReadRequest& read,
               std::span<const std::byte>* bytes) const;

  UcxContext& ucx_;
  const UcxOptions& options_;
  std::map<uint32_t, Region> regions_;
  absl::flat_hash_map<ucp_ep_h, std::shared_ptr<Served>> served_;
  std::vector<Request> requests_;
  std::vector<Request> answering_;
};

}  // namespace weir::kv
