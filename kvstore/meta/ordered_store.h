// SPDX-License-Identifier: Apache-2.0
//
// OrderedStore: keys and values in order of keys, changed in whole batches. Owned by one thread;
// calls may block for a disk. A failed Write changed nothing or everything, never a part; a synced
// one survives the power. RocksDB is one (rocks_store.h); the twin in memory is for tests and
// simulations and survives nothing.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stdx/status.h"

namespace weir::kv {

class OrderedStore {
 public:
  struct Change {
    std::string key;
    std::optional<std::string> value;  // nothing: deleted
  };
  enum class Durability : uint8_t { kSoon, kNow };

  virtual ~OrderedStore() = default;
  // kUnknownModel when the key is not there.
  virtual absl::StatusOr<std::string> Get(std::string_view key) = 0;
  // Every key that begins with `prefix`, in order, until `each` answers false. `each` changes
  // nothing.
  using Each = std::function<bool(std::string_view key, std::string_view value)>;
  virtual absl::Status Scan(std::string_view prefix, const Each& each) = 0;
  virtual absl::Status Write(std::span<const Change> changes, Durability durability) = 0;
};

class MemOrderedStore : public OrderedStore {
 public:
  absl::StatusOr<std::string> Get(std::string_view key) override {
    const auto found = map_.find(key);
    if (found == map_.end()) return Error(Reason::kUnknownModel, "there is no such key", "key");
    return found->second;
  }
  absl::Status Scan(std::string_view prefix, const Each& each) override {
    for (auto at = map_.lower_bound(prefix); at != map_.end(); ++at) {
      if (std::string_view(at->first).substr(0, prefix.size()) != prefix) break;
      if (!each(at->first, at->second)) break;
    }
    return absl::OkStatus();
  }
  absl::Status Write(std::span<const Change> changes, Durability) override {
    for (const Change& change : changes) {
      if (change.value)
        map_[change.key] = *change.value;
      else
        map_.erase(change.key);
    }
    return absl::OkStatus();
  }

 private:
  std::map<std::string, std::string, std::less<>> map_;
};

}  // namespace weir::kv
