// SPDX-License-Identifier: Apache-2.0
//
// MetaCore: which node keeps which runs of which domain, beyond one process. One thread; no clock,
// no network; its store may block for a disk. It owns the store. What it says is a hint: a reader's
// check of the record settles everything, so a stale answer costs a retry. What it promises:
//
//   prefix-closed  a run is taken in only behind a run that is there, and goes only when nothing
//   hangs on it fencing        a node that registered again has a new epoch; what its earlier life
//   says is refused, and what
//                  that life published is not seen any more
//   domains        a match sees one domain's runs; an erased domain is gone durably when
//   EraseDomain returns quotas         bytes a domain; beyond its quota a publish is refused, what
//   is there stays
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kvstore/blob/record.h"
#include "kvstore/key/block_key.h"
#include "kvstore/meta/ordered_store.h"

namespace weir::kv {

using NodeId = uint64_t;

struct CatalogRun {
  DomainId domain{};
  IndexKey parent;             // the root for the first of a chain
  std::vector<IndexKey> keys;  // of its blocks, 1 to 32
  std::vector<uint16_t> fingerprints;
  NodeId node = 0;
  uint32_t epoch = 0;  // of the node
  uint8_t tier = 0;
  bool approx = false;
  uint64_t bytes = 0;
};

class MetaCore {
 public:
  // Reads the whole store once, for the quotas. kCorrupt when an entry cannot be read: nothing is
  // guessed.
  static absl::StatusOr<std::unique_ptr<MetaCore>> Open(std::unique_ptr<OrderedStore> store);

  // A node's life begins: its epoch from now on. Durable.
  absl::StatusOr<uint32_t> Register(NodeId node);
  // `root`: of the domain; a run that hangs on it needs no parent. OK when it is there already.
  // kStaleEpoch, kUnknownModel (no parent), kTenantRate (quota), kBadField.
  absl::Status Publish(const IndexKey& root, const CatalogRun& run);
  // Refused with kNoCapacity while others hang on it. OK when it is not there.
  absl::Status Evict(const CatalogRun& run);
  absl::Status EraseDomain(const DomainId& domain);
  void SetQuota(const DomainId& domain, uint64_t bytes) { quota_[domain] = bytes; }
  uint64_t BytesOf(const DomainId& domain) const;

  struct Hit {
    NodeId node = 0;
    uint8_t tier = 0;
    IndexKey parent;
    IndexKey last;
    uint32_t first = 0;  // block in the run
    uint32_t count = 0;
    uint32_t at = 0;  // block in the prompt
  };
  // The longest prefix that live nodes have, as stretches without a gap in *out.
  absl::StatusOr<uint32_t> Match(const DomainId& domain, const IndexKey& root,
                                 std::span<const BlockKey> keys, bool exact, std::vector<Hit>* out);

 private:
  explicit MetaCore(std::unique_ptr<OrderedStore> store) : store_(std::move(store)) {}

  absl::Status Load();
  bool Current(NodeId node, uint32_t epoch) const;
  // Runs of live nodes behind `parent`.
  absl::Status ChildrenOf(const DomainId& domain, const IndexKey& parent,
                          std::vector<CatalogRun>* out);
  absl::StatusOr<bool> HasBlock(const DomainId& domain, const IndexKey& key);

  const std::unique_ptr<OrderedStore> store_;
  absl::flat_hash_map<NodeId, uint32_t> epochs_;
  absl::flat_hash_map<DomainId, uint64_t> bytes_;  // of what is in the store
  absl::flat_hash_map<DomainId, uint64_t> quota_;
};

}  // namespace weir::kv
