// SPDX-License-Identifier: Apache-2.0
#include "router/match/prefix_index.h"

#include "base/stdx/check.h"
#include "router/limits.h"

namespace weir::router {

bool PrefixIndex::Apply(InstanceId instance, const pb::CacheEvents& events) {
  Engine& engine = engines_[instance];
  if (events.snapshot()) {
    engine = Engine();
  } else if (engine.waits) {
    return true;
  } else if (events.number() != engine.number + 1) {
    WEIR_REACHED("router: a gap in what an engine holds");
    engine = Engine();
    engine.waits = true;
    return false;
  }
  engine.number = events.number();
  for (const uint64_t key : events.removed()) engine.keys.erase(key);
  for (const uint64_t key : events.added()) {
    if (engine.keys.size() >= kCacheKeysMax) break;
    engine.keys.insert(key);
  }
  return true;
}

// An engine gives up leaves before parents, so what it holds of a prompt is a prefix, and its end is
// found by halving.
uint32_t PrefixIndex::Match(InstanceId instance, std::span<const kv::BlockKey> keys) const {
  const auto engine = engines_.find(instance);
  if (engine == engines_.end()) return 0;
  size_t low = 0, high = keys.size();
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (engine->second.keys.contains(keys[middle - 1].index().hi)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<uint32_t>(low);
}

size_t PrefixIndex::keys() const {
  size_t count = 0;
  for (const auto& [id, engine] : engines_) count += engine.keys.size();
  return count;
}

}  // namespace weir::router
