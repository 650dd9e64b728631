// SPDX-License-Identifier: Apache-2.0
//
// MemBlob: a BlobStore in plain memory, first in, first out; the slow twin of the segment log for
// tests, and the store of simulations. Owned by one thread; nothing blocks; copies what it keeps.
// Full evicts the oldest record.
#pragma once

#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvstore/blob/blob_store.h"

namespace weir::kv {

class MemBlob : public BlobStore {
 public:
  explicit MemBlob(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  absl::StatusOr<BlobId> Append(const RecordHeader& header, std::span<const std::byte> payload,
                                BlobTag tag) override;
  absl::StatusOr<BlobId> Read(const BlobRead& read) override;
  void Poll(IoWait wait, std::vector<BlobEvent>* out) override;
  void Drop(Place place) override;
  absl::Status EraseDomain(const DomainId& domain) override;
  BlobStats stats() const override { return stats_; }

 private:
  struct Record {
    RecordHeader header;
    std::vector<std::byte> payload;
    BlobTag tag = 0;
  };

  void Forget(uint32_t number);
  absl::Status Copy(const BlobRead& read);

  const uint64_t capacity_bytes_;
  uint32_t last_number_ = 0;  // a place's segment
  BlobId last_id_ = 0;
  absl::flat_hash_map<uint32_t, Record> records_;
  std::deque<uint32_t> order_;  // numbers, also of what is gone
  std::vector<BlobEvent> events_;
  BlobStats stats_;
};

}  // namespace weir::kv
