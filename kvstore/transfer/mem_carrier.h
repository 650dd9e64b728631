// SPDX-License-Identifier: Apache-2.0
//
// MemCarrier: reads between instances of one process, the slow twin of the other carriers. It copies
// in Collect, on the owner's thread. A MemFabric is the registry through which instances find each
// other; it is shared by all of them, outlives them, and may be used from any thread. A peer whose
// carrier was destroyed is lost.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <shared_mutex>

#include "kvstore/transfer/carrier.h"

namespace weir::kv {

class MemFabric {
 public:
  void Add(const RegionToken& token, const Arena& arena);
  void Remove(const RegionToken& token);
  // Holds off Remove while it copies, so that the memory stays there.
  absl::Status Read(const RegionToken& token, uint64_t offset, std::span<std::byte> to) const;

 private:
  struct Entry {
    const std::byte* data;
    uint64_t bytes;
  };

  mutable std::shared_mutex mu_;
  std::map<RegionToken, Entry> regions_;  // guarded by mu_
};

std::unique_ptr<Carrier> MakeMemCarrier(MemFabric* fabric);

}  // namespace weir::kv
