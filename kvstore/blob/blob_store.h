// SPDX-License-Identifier: Apache-2.0
//
// BlobStore: keeps records somewhere and gives back blocks of them, verified. Owned by one thread;
// Append, Read and Drop never wait, their outcome comes out of Poll; EraseDomain may block for the
// disk. The caller owns payloads and read buffers and leaves them alone until the outcome is out.
// Anything may be lost at any time: a record that is not there, does not fit its keys or is damaged
// is a miss (kUnknownModel or kCorrupt), never other bytes. Full is an answer (kQueueFull: soon
// again; kNoCapacity: not now).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/blob/directory.h"
#include "kvstore/blob/record.h"

namespace weir::kv {

// Where a record lies. Segments are numbered from 1 and numbers are not used again in one life of a
// store.
struct Place {
  uint32_t segment = 0;
  uint32_t page = 0;

  bool operator==(const Place&) const = default;
};

using BlobId = uint64_t;   // of one Append or Read
using BlobTag = uint32_t;  // what a record is to the caller; comes back with every event of it

struct BlobRead {
  Place place;
  RecordShape shape;   // which the record must have
  uint32_t first = 0;  // blocks of the record
  uint32_t count = 0;
  uint32_t sections = 0;      // bit i: section i
  BlockKey last;              // of block last_at, which commits to all before it
  uint32_t last_at = UINT32_MAX;   // UINT32_MAX: the last block asked for
  bool exact = false;         // refuse a record that is marked approx
  std::span<std::byte> into;  // page-aligned, PlanRead().bytes
  RecordHeader* header = nullptr;  // where wanted: the record's, written before an OK is told
};

// Where a read puts what: part i is one section, whose block `first` begins at `view_at`.
struct ReadPlan {
  struct Part {
    uint32_t section = 0;
    uint64_t payload_at = 0;  // whole pages around the blocks asked for
    uint64_t bytes = 0;
    uint64_t buffer_at = 0;
    uint64_t view_at = 0;
  };
  std::array<Part, kRecordSectionsMax> parts;
  uint32_t part_count = 0;
  uint64_t bytes = 0;
};
ReadPlan PlanRead(const RecordShape& shape, uint32_t first, uint32_t count, uint32_t sections);
// Checks shape, range and buffer of a read: kBadField.
absl::Status CheckRead(const BlobRead& read);
// Checks what arrived: the record is the one meant, every block equals its checksum.
absl::Status VerifyRead(const BlobRead& read, const RecordHeader& header);

struct BlobEvent {
  enum class Kind : uint8_t {
    kAppended,  // outcome of Append: `place` where status is OK
    kRead,      // outcome of Read
    kMoved,     // the record `tag` lies at `place` now, no longer at `old_place`
    kGone,      // the record `tag` at `place` is no more: evicted or found damaged
  };
  Kind kind = Kind::kAppended;
  BlobId id = 0;
  absl::Status status;
  Place place;
  Place old_place;
  BlobTag tag = 0;
};

// What is found in a store that is opened again: enough for an index.
struct FoundRecord {
  Place place;
  DomainId domain{};
  IndexKey parent;
  IndexKey last;
  uint32_t blocks = 0;
  bool approx = false;
  std::array<uint16_t, kRecordBlocksMax> fingerprints{};
};

struct BlobStats {
  uint64_t written_bytes = 0;  // for callers
  uint64_t moved_bytes = 0;    // again, to keep what was read
  uint64_t read_bytes = 0;
  uint64_t live_bytes = 0;
  uint64_t held_bytes = 0;  // of the capacity, dead records included
  uint64_t records = 0;
  uint64_t segments = 0;
  uint64_t index_bytes = 0;  // of memory, for knowing what is there
  uint64_t appends_refused = 0;
  uint64_t write_errors = 0;
  uint64_t read_errors = 0;
  uint64_t damaged = 0;
  uint64_t evicted = 0;
  bool writes_off = false;  // too many errors: what is there can still be read
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // `header.stamp` is ignored. `payload` is page-aligned, sealed (SealPayload) and PayloadBytes()
  // long.
  virtual absl::StatusOr<BlobId> Append(const RecordHeader& header,
                                        std::span<const std::byte> payload, BlobTag tag) = 0;
  virtual absl::StatusOr<BlobId> Read(const BlobRead& read) = 0;
  // Moves what happened since the last call to the end of *out.
  virtual void Poll(IoWait wait, std::vector<BlobEvent>* out) = 0;
  // Forgets a record; nothing is told of it afterwards.
  virtual void Drop(Place place) = 0;
  // When it returns OK, no record of the domain that was ever handed over can be read again, not
  // even after a crash. The caller drops the places it knows.
  virtual absl::Status EraseDomain(const DomainId& domain) = 0;
  virtual BlobStats stats() const = 0;
};

}  // namespace weir::kv
