// SPDX-License-Identifier: Apache-2.0
//
// EmbeddedClient: the KvClient of a store in this process, the default. Owned by the thread that
// owns the TieredStore, which is the caller's and outlives it; copies happen within Load, Put and
// Poll on that thread, so a record costs a copy and a checksum there. Nothing waits for the disk.
// It keeps no lease but holds references, which time plays no role for.
#pragma once

#include <map>

#include "absl/container/flat_hash_map.h"
#include "kvstore/client/kv_client.h"
#include "kvstore/node/tiered_store.h"
#include "kvstore/node/window_ring.h"
#include "kvstore/transfer/lease.h"

namespace weir::kv {

class EmbeddedClient final : public KvClient {
 public:
  // `windows` may be null: no states are kept.
  explicit EmbeddedClient(TieredStore* store, WindowRing* windows = nullptr);

  absl::Status AddRegion(uint32_t region, Arena* arena) override;
  absl::StatusOr<KvOpId> Lookup(Instant now, const BlockKey& root, std::span<const BlockKey> keys,
                                bool exact, const RecordShape& shape) override;
  absl::StatusOr<KvOpId> Load(Instant now, KvOpId lookup, std::span<const BlockPart> parts,
                              Instant deadline) override;
  void Release(KvOpId lookup) override { lookups_.erase(lookup); }
  absl::StatusOr<KvOpId> Put(Instant now, const KvPut& put, Instant deadline) override;
  absl::StatusOr<KvOpId> PutState(Instant now, const KvState& state, Instant deadline) override;
  absl::StatusOr<KvOpId> LoadState(Instant now, const KvState& into, Instant deadline) override;
  absl::StatusOr<KvOpId> EraseDomain(Instant now, const DomainId& domain,
                                     Instant deadline) override;
  void Poll(Instant now, std::vector<KvOutcome>* out) override;
  // With work of the disk under way: soon.
  Instant NextDeadline() const override;
  bool up() const override { return true; }

 private:
  struct Stretch {
    TieredStore::Hit hit;
    BlockKey last;
    HostRef ref;  // of what was in memory at the lookup
  };
  struct Found {
    RecordShape shape;
    std::vector<Stretch> stretches;
  };
  // What a load still waits for: one stretch's parts, read from the disk into the host tier.
  struct Piece {
    TieredStore::Hit hit;
    BlockKey last;
    std::vector<BlockPart> parts;
    BlobId read = 0;  // 0: not started
    bool ended = false;
  };
  struct Loading {
    RecordShape shape;
    std::vector<Piece> pieces;
  };

  KvOpId End(const absl::Status& status);
  uint64_t BytesOf(uint32_t region) const;
  std::span<std::byte> Memory(const BlockPart& part, uint32_t bytes) const;
  absl::Status CopyOut(const HostRef& ref, const TieredStore::Hit& hit, const RecordShape& shape,
                       std::span<const BlockPart> parts) const;
  // True when the load is over, with its outcome in *status.
  bool Advance(Loading* loading, absl::Status* status);

  TieredStore& store_;
  WindowRing* const windows_;
  uint64_t last_id_ = 0;
  Instant polled_{};
  std::map<uint32_t, Arena*> regions_;
  absl::flat_hash_map<KvOpId, Found> lookups_;
  std::map<KvOpId, Loading> loads_;
  LeaseTable<KvOpId> deadlines_;
  std::vector<KvOutcome> outcomes_;
};

}  // namespace weir::kv
