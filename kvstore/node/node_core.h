// SPDX-License-Identifier: Apache-2.0
//
// NodeCore: what the store process of a host answers its engines: who holds what under which lease,
// which puts are being copied, which stretches come from the disk. Owned by one thread; it reads no
// clock and blocks for nothing but EraseDomain's disk. Store and transfer are the caller's and
// outlive it. Messages are hostile: what does not fit is answered with kBadField, and a client
// before its hello is dropped.
//
// An engine that dies loses nothing of others: its puts that have not landed are given up, its
// leases run out. Memory under a lease is not used again before the lease is over.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/net/channel.h"
#include "kvstore/node/tiered_store.h"
#include "kvstore/node/window_ring.h"
#include "kvstore/transfer/lease.h"
#include "kvstore/transfer/transfer.h"
#include "proto/kv.pb.h"

namespace weir::kv {

struct NodeEvent {
  enum class Kind : uint8_t { kTick, kMessage, kDown } kind = Kind::kTick;
  PeerId peer;
  std::shared_ptr<const v1::KvMessage> message;
};

struct NodeActions {
  struct Send {
    PeerId peer;
    v1::KvMessage message;
  };
  std::vector<Send> sends;
  std::vector<PeerId> closes;  // after the sends
  void Clear() {
    sends.clear();
    closes.clear();
  }
};

struct NodeOptions {
  InstanceId instance;
  std::string name;
  Duration lease = Millis(10'000);
  Duration put_max = Millis(30'000);
  Duration disk_poll = std::chrono::microseconds(200);  // while something of the disk is under way
  uint32_t clients_max = 64;
  uint32_t lookups_max = 1024;  // of all clients; beyond it kQueueFull
  uint32_t puts_max = 256;
  uint32_t fetches_max = 1024;  // waiting for the disk
};

struct NodeStats {
  uint32_t clients = 0;
  uint32_t lookups = 0;  // under lease
  uint32_t puts = 0;     // under way
  uint32_t fetches = 0;  // under way or waiting
  uint64_t lookups_total = 0;
  uint64_t found_blocks = 0;
  uint64_t asked_blocks = 0;
  uint64_t put_blocks = 0;
  uint64_t put_bytes = 0;
  uint64_t put_failed = 0;
  uint64_t states_put = 0;
  uint64_t states_asked = 0;
  uint64_t states_found = 0;
  uint64_t fetched = 0;
  uint64_t fetch_failed = 0;
  uint64_t leases_expired = 0;
  uint64_t refused = 0;  // messages that did not fit, and what was over a limit
};

class NodeCore {
 public:
  using Event = NodeEvent;
  using Actions = NodeActions;

  // `arena` is the memory that `store` keeps its host tier in, and region kNodeRegion of
  // `transfer`.
  // `windows` lies in the arena too, and so does `staging`, where states arrive; without a ring it is
  // null.
  struct Windows {
    WindowRing* ring = nullptr;
    std::span<std::byte> staging;  // room for some states
  };
  NodeCore(const NodeOptions& options, std::span<const std::byte> arena, TieredStore* store,
           Transfer* transfer, const Windows& windows);

  void On(Instant now, const Event& event, Actions* out);
  Instant NextDeadline() const;
  NodeStats stats() const;

 private:
  using LookupId = std::pair<PeerId, uint64_t>;
  struct Stretch {
    TieredStore::Hit hit;
    BlockKey last;
    HostRef ref;  // nothing while it is on the disk only
  };
  struct Lookup {
    RecordShape shape;
    std::vector<Stretch> stretches;
  };
  struct StatePut {
    BlockKey key;
    DomainId domain{};
    Position position = 0;
    uint32_t bytes = 0;
    uint32_t staging = 0;  // index of its room
  };
  struct Putting {
    PeerId peer;
    uint64_t id = 0;
    BlockKey root;
    std::vector<BlockKey> keys;
    TieredStore::Filling filling;
    std::unique_ptr<StatePut> state;  // of a window state, which has no filling
    absl::Status status;  // why it was given up
  };
  struct Fetch {
    PeerId peer;
    uint64_t id = 0;
    LookupId lookup;
    uint32_t stretch = 0;
  };

  void OnMessage(Instant now, PeerId peer, const v1::KvMessage& message, Actions* out);
  absl::Status OnHello(PeerId peer, const v1::KvHello& hello, Actions* out);
  absl::Status OnLookup(Instant now, PeerId peer, const v1::KvLookup& ask, Actions* out);
  absl::Status OnPut(Instant now, PeerId peer, const v1::KvPut& ask, Actions* out);
  absl::Status OnFetch(PeerId peer, const v1::KvFetch& ask, Actions* out);
  absl::Status OnPutState(Instant now, PeerId peer, const v1::KvPutState& ask);
  absl::Status OnFindState(Instant now, PeerId peer, const v1::KvFindState& ask, Actions* out);
  absl::Status OnErase(PeerId peer, const v1::KvErase& ask, Actions* out);
  void OnRelease(PeerId peer, const v1::KvRelease& release);
  void OnDown(PeerId peer);

  bool TakeRef(Lookup* lookup, Stretch* stretch);
  void Describe(const Lookup& lookup, const Stretch& stretch, v1::KvStretch* out) const;
  absl::StatusOr<std::vector<CopyOp>> CopiesOf(const v1::KvPut& ask, InstanceId from,
                                               const TieredStore::Filling& filling) const;
  void Poll(Instant now, Actions* out);
  void EndPut(Instant now, const Completion& done, Actions* out);
  absl::Status EndStatePut(Instant now, const StatePut& put, absl::Status status);
  std::span<std::byte> Staging(uint32_t index) const;
  void StartFetches(Actions* out);
  void EndFetch(const TieredStore::Fetched& fetched, Actions* out);
  void Answer(const Fetch& fetch, const absl::Status& status, Actions* out);
  static void SayDone(PeerId peer, uint64_t id, const absl::Status& status, Actions* out);

  const NodeOptions options_;
  const std::span<const std::byte> arena_;
  TieredStore& store_;
  Transfer& transfer_;
  const Windows windows_;

  Instant polled_{};
  std::map<PeerId, InstanceId> clients_;
  std::map<LookupId, Lookup> lookups_;
  LeaseTable<LookupId> leases_;
  absl::flat_hash_map<TransferId, Putting> puts_;
  LeaseTable<TransferId> put_deadlines_;
  std::vector<uint32_t> free_staging_;
  std::deque<Fetch> waiting_;                             // for room on the way from the disk
  absl::flat_hash_map<BlobId, std::vector<Fetch>> fetching_;
  size_t fetching_count_ = 0;
  NodeStats stats_;
};

}  // namespace weir::kv
