// SPDX-License-Identifier: Apache-2.0
//
// PrefixIndex: which blocks each prefill engine says it holds. A plain value of the router's core: one
// thread, nothing blocks, bounded by what an engine may tell. A hint and no more: an engine looks
// again when the request comes. It cannot fail; an engine whose numbers have a gap is forgotten until
// its next snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/stdx/ids.h"
#include "kvstore/key/block_key.h"
#include "proto/fleet.pb.h"

namespace weir::router {

namespace pb = ::weir::v1;

class PrefixIndex {
 public:
  // False: a message was missing, and a snapshot should be asked for. Once per gap.
  bool Apply(InstanceId instance, const pb::CacheEvents& events);
  void Lose(InstanceId instance) { engines_.erase(instance); }

  // How many of `keys`, from the first, the instance holds.
  uint32_t Match(InstanceId instance, std::span<const kv::BlockKey> keys) const;
  bool empty() const { return engines_.empty(); }
  size_t keys() const;  // of all instances

 private:
  struct Engine {
    uint64_t number = 0;  // of the last message
    bool waits = false;   // for a snapshot
    absl::flat_hash_set<uint64_t> keys;
  };
  absl::flat_hash_map<InstanceId, Engine> engines_;
};

}  // namespace weir::router
