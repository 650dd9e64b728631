// SPDX-License-Identifier: Apache-2.0
//
// HostTier: records in the host's memory, least recently used out first. Owned by one thread;
// nothing blocks, and no time is read. It owns the bookkeeping; the memory is an arena that
// outlives it, so that other processes of the host can map it. A record is there from Commit on,
// whole and sealed; memory under a HostRef is not used again before the last of them is gone,
// however long that takes. Full is an answer: what cannot be evicted (referenced, being filled or
// written out) stays.
//
// A chain is touched from its end to its root, so that the end is evicted first.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/runtime/time.h"
#include "kvstore/blob/record.h"
#include "kvstore/node/run_index.h"

namespace weir::kv {

class HostTier;

// A share in a record. Movable; must go before the tier does, on its thread.
class HostRef {
 public:
  HostRef() = default;
  ~HostRef() { Reset(); }
  HostRef(HostRef&& other) noexcept : tier_(other.tier_), slot_(other.slot_) {
    other.tier_ = nullptr;
  }
  HostRef& operator=(HostRef&& other) noexcept {
    std::swap(tier_, other.tier_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  explicit operator bool() const { return tier_ != nullptr; }
  const RecordHeader& header() const;
  std::span<const std::byte> payload() const;
  void Reset();

 private:
  friend class HostTier;
  HostRef(HostTier* tier, uint32_t slot) : tier_(tier), slot_(slot) {}
  HostTier* tier_ = nullptr;
  uint32_t slot_ = 0;
};

// What a domain has of the tier. Others cannot push it below what it is guaranteed, and it cannot
// grow beyond its limit: then its own coldest records make room.
struct HostShare {
  uint64_t guaranteed_bytes = 0;
  uint64_t limit_bytes = UINT64_MAX;
};

struct HostStats {
  uint64_t held_bytes = 0;
  uint64_t records = 0;
  uint64_t evicted = 0;
  uint64_t refused = 0;
  uint64_t expired = 0;  // reservations whose filler never came back
};

class HostTier {
 public:
  enum class Dirty : uint8_t { kNo, kYes };  // kYes: the disk has no copy yet

  // An empty `arena` of some capacity keeps records without their payload: for simulations and for
  // replaying traces.
  HostTier(std::span<std::byte> arena, uint64_t capacity_bytes);

  // kBadField when more than nine tenths of the tier would be guaranteed.
  absl::Status SetShare(const DomainId& domain, const HostShare& share);
  uint64_t HeldBy(const DomainId& domain) const;

  // Room for a record that is to be filled before `deadline`, found by evicting if need be; evicted
  // runs are appended to *gone. `header` needs no checksums yet.
  absl::StatusOr<uint32_t> Reserve(const RecordHeader& header, Instant deadline,
                                   std::vector<RunId>* gone);
  std::span<std::byte> Payload(uint32_t reservation);
  // Seals what was filled in and makes it findable as `run`. kLeaseExpired when the deadline had
  // passed.
  absl::Status Commit(uint32_t reservation, RunId run, Dirty dirty);
  // As Commit, for bytes that were sealed before and come with their checksums (read from a disk or
  // copied from a client's memory).
  absl::Status CommitSealed(uint32_t reservation, RunId run, const RecordHeader& header,
                            Dirty dirty);
  void Abort(uint32_t reservation);
  // Frees reservations whose time is over.
  void Expire(Instant now);

  // Reserve, copy and Commit in one; `payload` has the layout of the header's shape.
  absl::Status Put(const RecordHeader& header, RunId run, std::span<const std::byte> payload,
                   Dirty dirty, std::vector<RunId>* gone);
  // Nothing when the run is not here. Does not count as a use.
  HostRef Get(RunId run);
  // Copies blocks of one section out, verified against their checksums.
  absl::Status CopyOut(const HostRef& ref, uint32_t section, uint32_t first, uint32_t count,
                       std::span<std::byte> out) const;
  bool Holds(RunId run) const { return slot_of_.contains(run); }
  void Touch(RunId run);
  // Goes when nobody refers to it; is not found from now on.
  void Drop(RunId run);

  // The next record to write to the disk when less than `free_bytes` are free: the coldest that is
  // dirty and not being written. Its ref keeps it until Written.
  HostRef NextToWrite(uint64_t free_bytes, RunId* run);
  void Written(RunId run, bool ok);

  HostStats stats() const { return stats_; }
  uint64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  friend class HostRef;
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class State : uint8_t { kFree, kReserved, kHere, kDropped };
  struct Slot {
    State state = State::kFree;
    bool dirty = false;
    bool writing = false;
    uint32_t refs = 0;
    RunId run = 0;
    uint32_t colder = kNone;
    uint32_t hotter = kNone;
    uint64_t at = 0;
    uint64_t bytes = 0;
    Instant deadline{};
    DomainId domain{};
    std::unique_ptr<RecordHeader> header;  // null without an arena
  };

  absl::Status Publish(uint32_t reservation, RunId run, Dirty dirty);
  bool Allocate(uint64_t bytes, uint64_t* at);
  enum class Whose : uint8_t { kAny, kOwn };
  // The coldest record that `domain`'s need for room may cost.
  bool EvictOne(const DomainId& domain, Whose whose, std::vector<RunId>* gone);
  void FreeSlot(uint32_t index);
  void LinkHottest(uint32_t index);
  void Unlink(uint32_t index);
  std::span<std::byte> BytesOf(const Slot& slot) const;

  const std::span<std::byte> arena_;
  const uint64_t capacity_bytes_;
  std::map<uint64_t, uint64_t> holes_;                     // place → bytes
  std::set<std::pair<uint64_t, uint64_t>> holes_by_size_;  // bytes, place
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<uint32_t> free_slots_;
  std::set<std::pair<Instant, uint32_t>> reservations_;
  absl::flat_hash_map<RunId, uint32_t> slot_of_;
  absl::flat_hash_map<DomainId, HostShare> shares_;
  absl::flat_hash_map<DomainId, uint64_t> held_by_;
  uint32_t coldest_ = kNone;
  uint32_t hottest_ = kNone;
  HostStats stats_;
};

}  // namespace weir::kv
