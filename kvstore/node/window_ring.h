// SPDX-License-Identifier: Apache-2.0
//
// WindowRing: window states at the positions where turns end, in fixed slots that are overwritten
// in turn. Owned by one thread, which alone writes; nothing blocks; time is handed in. The memory
// is the caller's and may be mapped by others of the host or read over a network, so a reader takes
// a slot only if its generation is the same at both ends, its checksum is right, it has the key
// asked for and it is younger than the time to live. A state that is not there costs a bounded
// replay, never wrong bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/runtime/time.h"
#include "kvstore/blob/record.h"
#include "kvstore/key/block_key.h"

namespace weir::kv {

class WindowRing {
 public:
  struct Options {
    uint32_t state_bytes_max = 0;
    Duration time_to_live = Millis(300'000);
  };
  struct State {
    Position position = 0;
    std::span<const std::byte> bytes;
  };

  // Of a slot with its two headers, whole pages.
  static uint64_t SlotBytes(uint32_t state_bytes_max);
  // As many slots as `memory` holds; at least one.
  WindowRing(std::span<std::byte> memory, const Options& options);

  // Overwrites the oldest slot. kTooLarge for a state beyond state_bytes_max.
  absl::Status Put(Instant now, const BlockKey& key, Position position,
                   std::span<const std::byte> state, const DomainId& domain = {});
  // Copies the state out. kUnknownModel when there is none, kLeaseExpired when it is too old,
  // kCorrupt when it is damaged or half overwritten.
  absl::StatusOr<Position> Get(Instant now, const BlockKey& key, std::vector<std::byte>* out) const;
  // A turn went on from this state: it is overwritten before others, but a fork may still find it.
  void MarkCold(const BlockKey& key);
  void Erase(const BlockKey& key);
  void EraseDomain(const DomainId& domain);
  // The state in place, verified; until the next Put or Erase.
  absl::StatusOr<State> Find(Instant now, const BlockKey& key) const;

  // What a remote reader does with its copy of a slot.
  static absl::StatusOr<State> ReadSlot(Instant now, const BlockKey& key, Duration time_to_live,
                                        std::span<const std::byte> slot);
  // Where a remote reader finds the state.
  absl::StatusOr<uint32_t> SlotOf(const BlockKey& key) const;
  std::span<const std::byte> Slot(uint32_t index) const {
    return memory_.subspan(uint64_t{index} * slot_bytes_, slot_bytes_);
  }
  const Options& options() const { return options_; }
  uint32_t slots() const { return static_cast<uint32_t>(keys_.size()); }

 private:
  uint32_t NextSlot();

  const std::span<std::byte> memory_;
  const Options options_;
  const uint64_t slot_bytes_;
  uint64_t generation_ = 0;
  uint32_t next_ = 0;
  std::vector<BlockKey> keys_;  // of the slots
  std::vector<DomainId> domains_;
  std::vector<bool> used_;
  std::deque<BlockKey> cold_;  // the first marked first
  absl::flat_hash_map<BlockKey, uint32_t> slot_of_;
};

}  // namespace weir::kv
