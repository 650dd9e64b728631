// SPDX-License-Identifier: Apache-2.0
//
// LeaseTable<Key>: who may still count on what, until when. A pure value of the core that holds it:
// one thread, no clock, time comes in as an argument. Nothing is shared and nothing blocks. Grant
// refuses a key beyond the capacity; an expired key is reported once, by deadline and then by the
// order in which the deadlines were set, so that two runs agree.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/runtime/time.h"
#include "base/stdx/check.h"
#include "base/stdx/planted.h"

namespace weir::kv {

template <class Key>
class LeaseTable {
 public:
  explicit LeaseTable(size_t capacity) : capacity_(capacity) { WEIR_CHECK(capacity > 0); }

  // Starts a lease or moves the deadline of the one that is there. False when the table is full.
  [[nodiscard]] bool Grant(const Key& key, Instant deadline) {
    auto found = at_.find(key);
    if (found == at_.end()) {
      if (at_.size() >= capacity_) return false;
      at_.emplace(key, Insert(key, deadline));
      return true;
    }
    by_deadline_.erase(found->second);
    found->second = Insert(key, deadline);
    return true;
  }

  // Moves a deadline, never to an earlier instant: a renewal that was overtaken changes nothing.
  // False when the key holds no lease (it expired, or was never granted).
  [[nodiscard]] bool Renew(const Key& key, Instant deadline) {
    auto found = at_.find(key);
    if (found == at_.end()) return false;
    if (deadline <= found->second.first) return true;
    by_deadline_.erase(found->second);
    found->second = Insert(key, deadline);
    return true;
  }

  // Ends a lease early. False when there is none.
  bool Release(const Key& key) {
    auto found = at_.find(key);
    if (found == at_.end()) return false;
    by_deadline_.erase(found->second);
    at_.erase(found);
    return true;
  }

  bool Holds(const Key& key) const { return at_.contains(key); }
  // kNever without a lease.
  Instant DeadlineOf(const Key& key) const {
    auto found = at_.find(key);
    return found == at_.end() ? kNever : found->second.first;
  }

  // The instant at which Expire has something to do.
  Instant NextDeadline() const {
    if (by_deadline_.empty() || IsPlanted(Planted::kLeaseNeverExpires)) return kNever;
    return by_deadline_.begin()->first.first;
  }

  // Moves every key whose deadline is at or before `now` to the end of *out and forgets it.
  void Expire(Instant now, std::vector<Key>* out) {
    if (IsPlanted(Planted::kLeaseNeverExpires)) return;
    while (!by_deadline_.empty() && by_deadline_.begin()->first.first <= now) {
      auto first = by_deadline_.begin();
      at_.erase(first->second);
      out->push_back(std::move(first->second));
      by_deadline_.erase(first);
    }
  }

  size_t size() const { return at_.size(); }
  bool empty() const { return at_.empty(); }

 private:
  using Place = std::pair<Instant, uint64_t>;  // deadline, then order of setting

  Place Insert(const Key& key, Instant deadline) {
    Place place{deadline, ++sets_};
    by_deadline_.emplace(place, key);
    return place;
  }

  const size_t capacity_;
  uint64_t sets_ = 0;
  absl::flat_hash_map<Key, Place> at_;
  std::map<Place, Key> by_deadline_;
};

}  // namespace weir::kv
