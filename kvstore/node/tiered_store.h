// SPDX-License-Identifier: Apache-2.0
//
// TieredStore: blocks of KV in the host's memory and, below it, on a local disk, found by one
// index. The embedded library of one process: owned by one thread; nothing but Open and EraseDomain
// waits. It owns index, host tier and disk store; the arena is the caller's and outlives it. A miss
// is always legal, a wrong byte never comes out, and nothing crosses from one domain to another,
// since the keys of two have nothing in common. Full is an answer: a put may be refused, and a
// record that cannot be written to the disk in time is lost when its memory is needed; nobody waits
// for the disk to take it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kvstore/blob/blob_store.h"
#include "kvstore/blob/segment_log.h"
#include "kvstore/node/host_tier.h"
#include "kvstore/node/run_index.h"

namespace weir::kv {

struct TieredOptions {
  std::span<std::byte> arena;  // empty: records are counted, not kept (traces)
  uint64_t host_bytes = 0;
  uint32_t runs_max = 1 << 20;
  double host_free_share = 0.1;          // below it the coldest are written to the disk
  uint64_t write_bytes_max = 64 * kMiB;  // being written to the disk at once
  double promote_share = 0.25;           // of the host tier: being read into it at once
  std::string disk_path;                 // empty: no disk tier
  SegmentLogOptions disk;
  DirectoryOptions directory;
};

struct TieredStats {
  HostStats host;
  BlobStats disk;
  uint64_t runs = 0;
  uint64_t index_bytes = 0;
  uint64_t spills_dropped = 0;  // evicted from memory before the disk took them
  uint64_t put_refused = 0;
  uint64_t promoted = 0;       // records read from the disk into memory
  uint32_t disk_work = 0;      // reads into memory and writes under way
};

class TieredStore {
 public:
  static absl::StatusOr<std::unique_ptr<TieredStore>> Open(const TieredOptions& options);
  // With a disk store of the caller's choice, for tests.
  static std::unique_ptr<TieredStore> Create(const TieredOptions& options,
                                             std::unique_ptr<BlobStore> disk);

  struct Hit {
    RunId run = 0;
    uint32_t first = 0;  // block in the run
    uint32_t count = 0;
    uint32_t at = 0;  // block in the prompt
    bool in_host = false;
  };
  // The longest prefix that is here in any tier, and where; counts as a use of it.
  uint32_t Match(const BlockKey& root, std::span<const BlockKey> keys, RunIndex::Want want,
                 std::vector<Hit>* out);

  // Stores blocks [first, first + header.shape.blocks) of a prompt whose keys are `keys`; header's
  // parent and keys are filled in from them. kUnknownModel when the blocks before are not here; OK
  // without a copy when they themselves are.
  absl::Status Put(const BlockKey& root, std::span<const BlockKey> keys, uint32_t first,
                   RecordHeader header, std::span<const std::byte> payload);

  // A put in two steps, for bytes that arrive on their own: room in the host tier, then a record
  // whose header's checksums are filled in. Abort gives the room back; nothing expires by itself.
  struct Filling {
    bool here = false;  // the blocks are here already: there is nothing to fill or commit
    uint32_t reservation = 0;
    uint32_t first = 0;
    RecordHeader header;
    std::span<std::byte> payload;
  };
  absl::StatusOr<Filling> Reserve(const BlockKey& root, std::span<const BlockKey> keys,
                                  uint32_t first, RecordHeader header);
  absl::Status Commit(const BlockKey& root, std::span<const BlockKey> keys, const Filling& filling);
  void Abort(const Filling& filling) { host_.Abort(filling.reservation); }

  // Memory of a hit in the host tier; nothing when it is not there (any more), or when its header
  // says that the index was wrong: it knows 16 bits of a block. `last` is the key of the hit's last
  // block.
  HostRef Get(const Hit& hit, const BlockKey& last);
  HostTier& host() { return host_; }

  // Reads blocks of a hit from the disk into `read.into`; place is filled in. The outcome is told
  // by Poll.
  absl::StatusOr<BlobId> Fetch(const Hit& hit, BlobRead read);
  // Reads the whole record of a hit from the disk into the host tier, where Get finds it once Poll
  // told of it. `sections` is the shape of its blocks, `last` the key of the hit's last block. One
  // that is under way already is not read twice. kQueueFull when as many are as may be.
  absl::StatusOr<BlobId> Promote(const Hit& hit, RecordShape sections, const BlockKey& last);
  struct Fetched {
    BlobId id = 0;
    absl::Status status;
  };
  // Moves work on: writes cold records to the disk, takes what it answers.
  void Poll(IoWait wait, std::vector<Fetched>* out);

  absl::Status EraseDomain(const DomainId& domain);
  TieredStats stats() const;
  const RunIndex& index() const { return index_; }
  // Poll has something to do soon.
  bool disk_busy() const { return !writing_.empty() || !promotions_.empty(); }

 private:
  struct Writing {
    RunId run = 0;
    HostRef ref;
    uint64_t bytes = 0;
  };

  // A read of the disk into reserved memory.
  struct Promotion {
    RunId run = 0;
    Place place;
    uint32_t reservation = 0;
    uint64_t bytes = 0;
    std::unique_ptr<RecordHeader> header;
  };

  explicit TieredStore(const TieredOptions& options);
  uint16_t Intern(const DomainId& domain);
  BlobTag Found(const FoundRecord& record);
  enum class Before : uint8_t { kHere, kThere };  // the blocks of a put; only those before it
  absl::StatusOr<Before> CheckPut(const BlockKey& root, std::span<const BlockKey> keys,
                                  uint32_t first, const RecordHeader& header);
  RunId HoldChain(uint32_t first, std::vector<HostRef>* chain);
  absl::StatusOr<RunId> InsertRun(const RecordHeader& header, RunId parent);
  absl::Status EndPromotion(Promotion& promotion, absl::Status read);
  void LostFromHost(const std::vector<RunId>& runs);
  void RemoveRun(RunId run);
  void TouchChain(uint32_t end);
  void WriteCold();
  void TakeEvent(BlobEvent& event, std::vector<Fetched>* out);
  RecordHeader WithKeys(RecordHeader header, const BlockKey& root, std::span<const BlockKey> keys,
                        uint32_t first) const;

  const TieredOptions options_;
  RunIndex index_;
  HostTier host_;
  std::unique_ptr<BlobStore> disk_;  // may be null
  std::vector<DomainId> domains_;
  absl::flat_hash_map<DomainId, uint16_t> domain_of_;
  absl::flat_hash_map<BlobId, Writing> writing_;
  uint64_t writing_bytes_ = 0;
  absl::flat_hash_map<BlobId, Promotion> promotions_;
  uint64_t promoting_bytes_ = 0;
  uint64_t spills_dropped_ = 0;
  uint64_t put_refused_ = 0;
  uint64_t promoted_ = 0;
  std::vector<RunIndex::Hit> hits_;
  std::vector<BlobEvent> events_;
};

}  // namespace weir::kv
