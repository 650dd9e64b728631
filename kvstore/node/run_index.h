// SPDX-License-Identifier: Apache-2.0
//
// RunIndex: which blocks a host keeps, at block grain. A run is consecutive blocks that were stored
// together; the index knows its parent's key, its last key and 16 bits of each block, and the
// record's header settles the rest. A plain value of the thread that owns the store; nothing
// blocks. It is prefix-closed: a run that goes takes its descendants along, since nothing could be
// reused of them. Full is an answer.
//
// Memory: 48 bytes a run here, 4 for its bucket and about 11 in the segment log; 2 bytes a block.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/blob/blob_store.h"
#include "kvstore/key/block_key.h"

namespace weir::kv {

using RunId = uint32_t;  // 0: none

struct NewRun {
  uint16_t domain = 0;  // interned by the store
  IndexKey parent;
  IndexKey last;
  std::span<const uint16_t> fingerprints;  // one a block, 1 to 32
  bool approx = false;
  RunId parent_run =
      0;  // the run that holds `parent`; 0 for the first of a chain or when not known
};

class RunIndex {
 public:
  enum Tier : uint8_t { kHost = 1, kDisk = 2 };

  explicit RunIndex(uint32_t runs_max);

  absl::StatusOr<RunId> Insert(const NewRun& run);
  // Removes a run and all that hang on it; they are appended to *gone, the run first.
  void Remove(RunId run, std::vector<RunId>* gone);
  void RunsOf(uint16_t domain, std::vector<RunId>* out) const;

  // A stretch of a prompt: blocks [first, first + count) of a run are blocks [at, at + count) of
  // the prompt.
  struct Hit {
    RunId run = 0;
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t at = 0;
  };
  enum class Want : uint8_t { kAny, kExact };  // kExact: without what a bounded replay computed
  // The longest prefix of `keys` that is here, as stretches without a gap in *out. Returns its
  // blocks.
  uint32_t Match(const BlockKey& root, std::span<const BlockKey> keys, Want want,
                 std::vector<Hit>* out);

  bool Holds(RunId run) const { return run != 0 && run <= used_ && at(run).count != 0; }
  uint32_t BlocksOf(RunId run) const { return at(run).count; }
  uint16_t DomainOf(RunId run) const { return at(run).domain; }
  bool approx(RunId run) const { return (at(run).flags & kApprox) != 0; }
  uint8_t tiers(RunId run) const { return at(run).flags & (kHost | kDisk); }
  void SetTier(RunId run, Tier tier) { at(run).flags |= tier; }
  void ClearTier(RunId run, Tier tier) { at(run).flags &= static_cast<uint8_t>(~tier); }
  Place place(RunId run) const { return {at(run).segment, at(run).page}; }
  void SetPlace(RunId run, Place place) {
    at(run).segment = place.segment;
    at(run).page = place.page;
  }

  uint32_t size() const { return size_; }
  uint64_t MemoryBytes() const;

 private:
  static constexpr uint8_t kApprox = 4;
  static constexpr uint8_t kGoing = 8;
  static constexpr uint32_t kChunkEntries = 1024;
  static constexpr uint32_t kPoolChunk = 16384;

  struct Entry {
    std::array<uint32_t, 2> parent{};  // 64 bits of the key: the entry stays without padding
    uint32_t last = 0;
    uint32_t segment = 0;
    uint32_t page = 0;
    uint32_t fingerprints = 0;  // place in the pool
    uint32_t next_in_bucket = 0;
    RunId parent_run = 0;
    RunId first_child = 0;
    RunId next_sibling = 0;
    RunId previous_sibling = 0;
    uint8_t count = 0;  // 0: free
    uint8_t flags = 0;
    uint16_t domain = 0;
  };
  static_assert(sizeof(Entry) == 48);

  Entry& at(RunId run) { return chunks_[(run - 1) / kChunkEntries][(run - 1) % kChunkEntries]; }
  const Entry& at(RunId run) const {
    return chunks_[(run - 1) / kChunkEntries][(run - 1) % kChunkEntries];
  }
  uint32_t& BucketOf(const std::array<uint32_t, 2>& parent) {
    return buckets_[static_cast<size_t>((uint64_t{parent[1]} * buckets_.size()) >> 32)];
  }
  const uint16_t* Prints(const Entry& entry) const {
    return pool_[entry.fingerprints / kPoolChunk].get() + entry.fingerprints % kPoolChunk;
  }
  uint32_t TakePrints(std::span<const uint16_t> fingerprints);
  void Link(RunId run, RunId parent);
  void Unlink(RunId run);
  void Free(RunId run);
  uint32_t CountEqual(const Entry& entry, std::span<const BlockKey> keys) const;

  const uint32_t runs_max_;
  std::vector<std::unique_ptr<Entry[]>> chunks_;
  std::vector<uint32_t> buckets_;  // by parent
  std::vector<std::unique_ptr<uint16_t[]>> pool_;
  uint32_t pool_used_ = 0;
  std::array<std::vector<uint32_t>, kRecordBlocksMax + 1> free_prints_;  // by length
  std::vector<RunId> free_;
  uint32_t used_ = 0;  // entries ever taken
  uint32_t size_ = 0;
};

}  // namespace weir::kv
