// SPDX-License-Identifier: Apache-2.0
//
// UcxReader: the reader's side of UcxCarrier. It keeps one link per peer, cuts reads into pieces,
// asks for at most `window` of them at a time and lets each land in the caller's pages. Everything
// runs on the carrier's progress thread and nothing blocks; results go to the DoneQueue. It owns the
// links' endpoints; destinations are borrowed and written until the read is reported done, never
// after. A link that fails ends its reads and is tried again.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvstore/transfer/ucx_context.h"

namespace weir::kv {

class UcxReader {
 public:
  UcxReader(UcxContext* ucx, const UcxOptions& options, DoneQueue* done);
  ~UcxReader();

  // The first call for a peer starts its link. `address` is the same for all regions of a peer.
  void Attach(RemoteHandle remote, const SocketAddress& address, uint32_t region,
              const RegionToken& token, Instant now);
  void Detach(RemoteHandle remote);
  void Read(const CarrierOp& op, Instant now);
  void Cancel(uint64_t transfer);

  // Asks for further pieces, deals with links that failed since, and tries again those that are due.
  void Advance(Instant now);
  Instant NextRetry() const;
  // Once per ping interval.
  void Tick(Instant now);

 private:
  enum class State : uint8_t { kWaiting, kConnecting, kUp, kClosing };
  using OpKey = std::pair<uint64_t, uint64_t>;  // transfer, then a number of ours

  struct Op {
    CarrierOp read;
    Instant posted;
    uint32_t asked = 0;   // bytes
    uint32_t landed = 0;  // bytes
    uint32_t pieces = 0;  // under way
    absl::Status status;
  };
  struct Piece {
    RemoteHandle link = 0;
    OpKey op;
    uint32_t offset = 0;  // in the op
    uint32_t bytes = 0;
    Instant deadline = kNever;
    bool landing = false;  // UCX is writing
  };
  struct Link {
    State state = State::kWaiting;
    SocketAddress address;
    std::map<uint32_t, RegionToken> regions;
    std::unique_ptr<UcxPeer> peer;
    ucp_ep_h ep = nullptr;  // of peer, for comparison
    bool heard = false;
    bool detached = false;
    uint32_t misses = 0;
    uint32_t pieces = 0;
    Duration backoff{};
    Instant retry_at{};
    std::deque<OpKey> waiting[kTrafficCount];  // not asked for completely
  };

  // What UCX gets to hold while bytes land. It may call back after we are gone.
  struct Landing {
    std::shared_ptr<UcxReader*> reader;  // null after our destruction
    uint64_t piece;
  };

  static ucs_status_t OnPong(void* arg, const void* header, size_t header_bytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t OnData(void* arg, const void* header, size_t header_bytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* param);
  static void OnLanded(void* request, ucs_status_t status, size_t bytes, void* arg);

  ucs_status_t TakeData(uint64_t id, Piece& piece, Op& op, void* data, size_t bytes, bool rendezvous);
  void Connect(Link& link, RemoteHandle remote, Instant now);
  void Ping(Link& link, RemoteHandle remote);
  void AskMore(Link& link, RemoteHandle remote, Instant now);
  bool AskPiece(Link& link, RemoteHandle remote, Op& op, const OpKey& key, Instant now);
  void EndPiece(uint64_t id, const absl::Status& status);
  void EndOpIfOver(const OpKey& key);
  // Marks what waits or is under way on a link as failed; what waits ends at once.
  void FailOps(RemoteHandle remote, Link& link, const absl::Status& status);
  void Lose(RemoteHandle remote, Link& link, const absl::Status& status, Instant now);
  void Closed(RemoteHandle remote);
  void ExpireWaiting(RemoteHandle remote, Link& link, Instant now);
  void CheckDeadlines(Instant now);

  UcxContext& ucx_;
  const UcxOptions& options_;
  DoneQueue& done_;
  std::map<RemoteHandle, Link> links_;
  std::map<OpKey, Op> ops_;
  absl::flat_hash_map<uint64_t, Piece> pieces_;
  std::vector<RemoteHandle> detached_;  // closed, to be forgotten
  const std::shared_ptr<UcxReader*> self_;
  uint64_t last_op_ = 0;
  uint64_t last_piece_ = 0;
};

}  // namespace weir::kv
