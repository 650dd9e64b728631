// SPDX-License-Identifier: Apache-2.0
#include "kvstore/meta/meta_core.h"

#include <algorithm>
#include <utility>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"

namespace weir::kv {
namespace {

// Keys: 'e' node → epoch;  'r' domain parent last node → run;  'b' domain block last node → parent,
// for the blocks that other runs may hang on.
constexpr size_t kRunKeyBytes = 1 + 16 + 16 + 16 + 8;
constexpr size_t kRunHeadBytes = 4 + 8 + 1 + 1 + 2;

template <class T>
void Append(std::string* out, const T& value) {
  const size_t at = out->size();
  out->resize(at + sizeof(T));
  StoreAs(out->data() + at, value);
}

std::string Prefix(char kind, const DomainId& domain) {
  std::string key(1, kind);
  Append(&key, domain);
  return key;
}

std::string Prefix(char kind, const DomainId& domain, const IndexKey& of) {
  std::string key = Prefix(kind, domain);
  Append(&key, of.hi);
  Append(&key, of.lo);
  return key;
}

std::string KeyOf(char kind, const CatalogRun& run, const IndexKey& of) {
  std::string key = Prefix(kind, run.domain, of);
  Append(&key, run.keys.back().hi);
  Append(&key, run.keys.back().lo);
  Append(&key, run.node);
  return key;
}

std::string EpochKey(NodeId node) {
  std::string key = "e";
  Append(&key, node);
  return key;
}

std::string ValueOf(const CatalogRun& run) {
  std::string value;
  Append(&value, run.epoch);
  Append(&value, run.bytes);
  Append(&value, run.tier);
  Append(&value, static_cast<uint8_t>(run.approx));
  Append(&value, static_cast<uint16_t>(run.keys.size()));
  for (const IndexKey& key : run.keys) {
    Append(&value, key.hi);
    Append(&value, key.lo);
  }
  for (const uint16_t print : run.fingerprints) Append(&value, print);
  return value;
}

absl::StatusOr<CatalogRun> ParseRun(std::string_view key, std::string_view value) {
  const absl::Status damaged =
      Error(Reason::kCorrupt, "an entry of the run catalogue cannot be read");
  if (key.size() != kRunKeyBytes || value.size() < kRunHeadBytes) return damaged;
  CatalogRun run;
  run.domain = LoadAs<DomainId>(key.data() + 1);
  run.parent = {LoadAs<uint64_t>(key.data() + 17), LoadAs<uint64_t>(key.data() + 25)};
  run.node = LoadAs<uint64_t>(key.data() + 49);
  run.epoch = LoadAs<uint32_t>(value.data());
  run.bytes = LoadAs<uint64_t>(value.data() + 4);
  run.tier = LoadAs<uint8_t>(value.data() + 12);
  run.approx = LoadAs<uint8_t>(value.data() + 13) != 0;
  const size_t count = LoadAs<uint16_t>(value.data() + 14);
  if (count == 0 || count > kRecordBlocksMax || value.size() != kRunHeadBytes + count * 18)
    return damaged;
  for (size_t i = 0; i < count; ++i) {
    const char* at = value.data() + kRunHeadBytes + i * 16;
    run.keys.push_back({LoadAs<uint64_t>(at), LoadAs<uint64_t>(at + 8)});
    run.fingerprints.push_back(LoadAs<uint16_t>(value.data() + kRunHeadBytes + count * 16 + i * 2));
  }
  return run;
}

// The changes that take a run in or out: its entry and one for each block.
void ChangesOf(const CatalogRun& run, bool in, std::vector<OrderedStore::Change>* out) {
  out->push_back({KeyOf('r', run, run.parent), in ? std::optional(ValueOf(run)) : std::nullopt});
  std::string parent;
  Append(&parent, run.parent.hi);
  Append(&parent, run.parent.lo);
  Append(&parent, run.epoch);
  for (const IndexKey& key : run.keys) {
    out->push_back({KeyOf('b', run, key), in ? std::optional(parent) : std::nullopt});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetaCore>> MetaCore::Open(std::unique_ptr<OrderedStore> store) {
  std::unique_ptr<MetaCore> core(new MetaCore(std::move(store)));
  WEIR_TRY(core->Load());
  return core;
}

absl::Status MetaCore::Load() {
  absl::Status status;
  WEIR_TRY(store_->Scan("e", [&](std::string_view key, std::string_view value) {
    if (key.size() != 9 || value.size() != 4)
      status = Error(Reason::kCorrupt, "an epoch of the run catalogue cannot be read");
    else
      epochs_[LoadAs<uint64_t>(key.data() + 1)] = LoadAs<uint32_t>(value.data());
    return status.ok();
  }));
  WEIR_TRY(status);
  WEIR_TRY(store_->Scan("r", [&](std::string_view key, std::string_view value) {
    const absl::StatusOr<CatalogRun> run = ParseRun(key, value);
    if (run.ok())
      bytes_[run->domain] += run->bytes;
    else
      status = run.status();
    return status.ok();
  }));
  return status;
}

bool MetaCore::Current(NodeId node, uint32_t epoch) const {
  const auto found = epochs_.find(node);
  return found != epochs_.end() && found->second == epoch;
}

absl::StatusOr<uint32_t> MetaCore::Register(NodeId node) {
  const auto found = epochs_.find(node);
  const uint32_t epoch = found == epochs_.end() ? 1 : found->second + 1;
  std::string value;
  Append(&value, epoch);
  const OrderedStore::Change change{EpochKey(node), value};
  WEIR_TRY(store_->Write({&change, 1}, OrderedStore::Durability::kNow));
  epochs_[node] = epoch;
  return epoch;
}

absl::Status MetaCore::ChildrenOf(const DomainId& domain, const IndexKey& parent,
                                  std::vector<CatalogRun>* out) {
  absl::Status status;
  WEIR_TRY(
      store_->Scan(Prefix('r', domain, parent), [&](std::string_view key, std::string_view value) {
        absl::StatusOr<CatalogRun> run = ParseRun(key, value);
        if (!run.ok())
          status = run.status();
        else if (Current(run->node, run->epoch))
          out->push_back(*std::move(run));
        return status.ok();
      }));
  return status;
}

absl::StatusOr<bool> MetaCore::HasBlock(const DomainId& domain, const IndexKey& key) {
  bool has = false;
  WEIR_TRY(store_->Scan(Prefix('b', domain, key), [&](std::string_view at, std::string_view value) {
    if (at.size() != kRunKeyBytes || value.size() != 20) return true;
    has = Current(LoadAs<uint64_t>(at.data() + 49), LoadAs<uint32_t>(value.data() + 16));
    return !has;
  }));
  return has;
}

absl::Status MetaCore::Publish(const IndexKey& root, const CatalogRun& run) {
  if (run.keys.empty() || run.keys.size() > kRecordBlocksMax ||
      run.keys.size() != run.fingerprints.size()) {
    return Error(Reason::kBadField, "a run has 1 to 32 blocks and a fingerprint for each", "keys");
  }
  if (!Current(run.node, run.epoch)) {
    WEIR_REACHED("meta: publish of an earlier life");
    return Error(Reason::kStaleEpoch, "the node registered again since", "epoch");
  }
  if (run.parent != root) {
    WEIR_ASSIGN(const bool has, HasBlock(run.domain, run.parent));
    if (!has)
      return Error(Reason::kUnknownModel, "the blocks before the run are not in the catalogue",
                   "parent");
  }
  // What the same node published before, perhaps in an earlier life, is replaced.
  uint64_t before = 0;
  const absl::StatusOr<std::string> old = store_->Get(KeyOf('r', run, run.parent));
  if (old.ok()) {
    WEIR_ASSIGN(const CatalogRun parsed, ParseRun(KeyOf('r', run, run.parent), *old));
    before = parsed.bytes;
  }
  uint64_t& held = bytes_[run.domain];
  const auto quota = quota_.find(run.domain);
  if (quota != quota_.end() && held - before + run.bytes > quota->second) {
    return Error(Reason::kTenantRate, "the account's share of the store is used up", "bytes");
  }
  std::vector<OrderedStore::Change> changes;
  ChangesOf(run, true, &changes);
  WEIR_TRY(store_->Write(changes, OrderedStore::Durability::kSoon));
  held += run.bytes - before;
  return absl::OkStatus();
}

absl::Status MetaCore::Evict(const CatalogRun& run) {
  if (run.keys.empty()) return Error(Reason::kBadField, "a run has blocks", "keys");
  if (!Current(run.node, run.epoch))
    return Error(Reason::kStaleEpoch, "the node registered again since", "epoch");
  const std::string key = KeyOf('r', run, run.parent);
  const absl::StatusOr<std::string> value = store_->Get(key);
  if (!value.ok())
    return ReasonOf(value.status()) == Reason::kUnknownModel ? absl::OkStatus() : value.status();
  WEIR_ASSIGN(const CatalogRun stored, ParseRun(key, *value));
  // Another node's copy may go on carrying what hangs on this one.
  std::vector<CatalogRun> same;
  WEIR_TRY(ChildrenOf(run.domain, run.parent, &same));
  const bool copied = std::any_of(same.begin(), same.end(), [&](const CatalogRun& other) {
    return other.node != run.node && other.keys == stored.keys;
  });
  for (const IndexKey& block : stored.keys) {
    std::vector<CatalogRun> children;
    if (!copied) WEIR_TRY(ChildrenOf(run.domain, block, &children));
    if (!children.empty()) {
      return Error(Reason::kNoCapacity, "other runs hang on this one", "keys");
    }
  }
  std::vector<OrderedStore::Change> changes;
  ChangesOf(stored, false, &changes);
  WEIR_TRY(store_->Write(changes, OrderedStore::Durability::kSoon));
  bytes_[run.domain] -= stored.bytes;
  return absl::OkStatus();
}

absl::Status MetaCore::EraseDomain(const DomainId& domain) {
  std::vector<OrderedStore::Change> changes;
  for (const char kind : {'r', 'b'}) {
    WEIR_TRY(store_->Scan(Prefix(kind, domain), [&](std::string_view key, std::string_view) {
      changes.push_back({std::string(key), std::nullopt});
      return true;
    }));
  }
  WEIR_TRY(store_->Write(changes, OrderedStore::Durability::kNow));
  bytes_.erase(domain);
  return absl::OkStatus();
}

uint64_t MetaCore::BytesOf(const DomainId& domain) const {
  const auto found = bytes_.find(domain);
  return found == bytes_.end() ? 0 : found->second;
}

// As in a host's index: a stretch may begin at any block that is covered already.
absl::StatusOr<uint32_t> MetaCore::Match(const DomainId& domain, const IndexKey& root,
                                         std::span<const BlockKey> keys, bool exact,
                                         std::vector<Hit>* out) {
  out->clear();
  uint32_t covered = 0;
  uint32_t next = 0;
  Hit best;
  while (covered < keys.size()) {
    for (; next <= covered; ++next) {
      std::vector<CatalogRun> runs;
      WEIR_TRY(ChildrenOf(domain, next == 0 ? root : keys[next - 1].index(), &runs));
      for (const CatalogRun& run : runs) {
        if (exact && run.approx) continue;
        uint32_t count = 0;
        while (count < run.keys.size() && next + count < keys.size() &&
               run.keys[count] == keys[next + count].index() &&
               run.fingerprints[count] == keys[next + count].fingerprint()) {
          ++count;
        }
        if (next + count <= best.at + best.count) continue;
        best = {run.node, run.tier, run.parent, run.keys.back(), 0, count, next};
      }
    }
    const uint32_t end = best.at + best.count;
    if (end <= covered) break;
    Hit hit = best;
    hit.first = covered - best.at;
    hit.count = end - covered;
    hit.at = covered;
    out->push_back(hit);
    covered = end;
  }
  return covered;
}

}  // namespace weir::kv
