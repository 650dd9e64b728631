// SPDX-License-Identifier: Apache-2.0
#include "kvstore/node/embedded_client.h"

#include <algorithm>
#include <cstring>

#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "base/stdx/status.h"
#include "kvstore/transfer/arena.h"

namespace weir::kv {
namespace {

constexpr Duration kDiskPoll = std::chrono::microseconds(200);

bool SameSections(const RecordShape& a, const RecordShape& b) {
  return a.sections == b.sections && a.section == b.section;
}

}  // namespace

EmbeddedClient::EmbeddedClient(TieredStore* store, WindowRing* windows)
    : store_(*store), windows_(windows), deadlines_(kKvOperationsMax) {}

absl::Status EmbeddedClient::AddRegion(uint32_t region, Arena* arena) {
  if (!regions_.emplace(region, arena).second)
    return Error(Reason::kBadField, "a region's number is used twice", "region");
  return absl::OkStatus();
}

uint64_t EmbeddedClient::BytesOf(uint32_t region) const {
  const auto found = regions_.find(region);
  return found == regions_.end() ? 0 : found->second->bytes();
}

std::span<std::byte> EmbeddedClient::Memory(const BlockPart& part, uint32_t bytes) const {
  return {regions_.at(part.region)->data() + part.offset, bytes};
}

KvOpId EmbeddedClient::End(const absl::Status& status) {
  const KvOpId id(++last_id_);
  outcomes_.push_back({.id = id, .status = status});
  return id;
}

absl::StatusOr<KvOpId> EmbeddedClient::Lookup(Instant, const BlockKey& root,
                                              std::span<const BlockKey> keys, bool exact,
                                              const RecordShape& shape) {
  if (lookups_.size() >= kKvLookupsMax)
    return Error(Reason::kQueueFull, "too many lookups are not released");
  std::vector<TieredStore::Hit> hits;
  store_.Match(root, keys, exact ? RunIndex::Want::kExact : RunIndex::Want::kAny, &hits);
  KvOutcome outcome{.id = KvOpId(++last_id_)};
  Found lookup{shape, {}};
  for (const TieredStore::Hit& hit : hits) {
    Stretch stretch{hit, keys[hit.at + hit.count - 1], {}};
    stretch.ref = store_.Get(hit, stretch.last);
    if (stretch.ref && !SameSections(stretch.ref.header().shape, shape)) break;
    if (!stretch.ref && (store_.index().tiers(hit.run) & RunIndex::kDisk) == 0) break;
    outcome.blocks += hit.count;
    outcome.runs.push_back({hit.at, hit.count, stretch.ref ? Tier::kHost : Tier::kDisk,
                            store_.index().approx(hit.run)});
    lookup.stretches.push_back(std::move(stretch));
  }
  const KvOpId id = outcome.id;
  lookups_.emplace(id, std::move(lookup));
  outcomes_.push_back(std::move(outcome));
  return id;
}

absl::StatusOr<KvOpId> EmbeddedClient::Load(Instant, KvOpId lookup,
                                            std::span<const BlockPart> parts, Instant deadline) {
  const auto found = lookups_.find(lookup);
  if (found == lookups_.end())
    return Error(Reason::kBadField, "there is no such lookup (any more)", "lookup");
  if (loads_.size() >= kKvOperationsMax)
    return Error(Reason::kQueueFull, "too many operations of the store are under way");
  const std::vector<Stretch>& stretches = found->second.stretches;
  const RecordShape& shape = found->second.shape;
  std::map<size_t, std::vector<BlockPart>> by_stretch;
  for (const BlockPart& part : parts) {
    const auto after =
        std::upper_bound(stretches.begin(), stretches.end(), part.block,
                         [](uint32_t block, const Stretch& s) { return block < s.hit.at; });
    if (after == stretches.begin() ||
        part.block >= (after - 1)->hit.at + (after - 1)->hit.count ||
        part.section >= shape.sections)
      return Error(Reason::kBadField, "a load asks for what the lookup has not found", "parts");
    const uint64_t bytes = shape.section[part.section].block_bytes;
    if (bytes > BytesOf(part.region) || part.offset > BytesOf(part.region) - bytes)
      return Error(Reason::kBadField, "a part lies outside of its region", "parts");
    by_stretch[static_cast<size_t>(after - 1 - stretches.begin())].push_back(part);
  }
  Loading loading{shape, {}};
  for (auto& [index, some] : by_stretch) {
    const Stretch& stretch = stretches[index];
    if (!stretch.ref) {
      loading.pieces.push_back({stretch.hit, stretch.last, std::move(some)});
      continue;
    }
    const absl::Status copied = CopyOut(stretch.ref, stretch.hit, shape, some);
    if (!copied.ok()) return End(copied);
  }
  absl::Status status;
  if (Advance(&loading, &status)) return End(status);
  const KvOpId id(++last_id_);
  WEIR_CHECK(deadlines_.Grant(id, deadline));
  loads_.emplace(id, std::move(loading));
  return id;
}

absl::Status EmbeddedClient::CopyOut(const HostRef& ref, const TieredStore::Hit& hit,
                                     const RecordShape& shape,
                                     std::span<const BlockPart> parts) const {
  for (const BlockPart& part : parts) {
    const uint32_t bytes = shape.section[part.section].block_bytes;
    WEIR_TRY(store_.host().CopyOut(ref, part.section, hit.first + (part.block - hit.at), 1,
                                   Memory(part, bytes)));
  }
  return absl::OkStatus();
}

bool EmbeddedClient::Advance(Loading* loading, absl::Status* status) {
  bool all = true;
  for (Piece& piece : loading->pieces) {
    if (piece.ended) continue;
    if (const HostRef ref = store_.Get(piece.hit, piece.last)) {
      *status = CopyOut(ref, piece.hit, loading->shape, piece.parts);
      piece.ended = true;
      if (!status->ok()) return true;
      continue;
    }
    all = false;
    if (piece.read != 0) continue;
    const absl::StatusOr<BlobId> read = store_.Promote(piece.hit, loading->shape, piece.last);
    if (read.ok()) piece.read = *read;
    if (read.ok() || (ReasonOf(read.status()) == Reason::kQueueFull && store_.disk_busy())) continue;
    *status = read.status();
    return true;
  }
  return all;
}

absl::StatusOr<KvOpId> EmbeddedClient::Put(Instant, const KvPut& put, Instant) {
  WEIR_TRY(CheckPut(put, [&](uint32_t region) { return BytesOf(region); }));
  RecordHeader header;
  header.domain = put.domain;
  header.schema = put.schema;
  header.approx = put.approx;
  header.shape = put.shape;
  absl::StatusOr<TieredStore::Filling> filling =
      store_.Reserve(put.root, put.keys, put.first, std::move(header));
  if (!filling.ok() || filling->here) return End(filling.status());
  for (const BlockPart& part : put.parts) {
    const uint32_t block = part.block - put.first;
    const uint32_t bytes = put.shape.section[part.section].block_bytes;
    std::byte* to = filling->payload.data() + put.shape.BlockAt(part.section, block);
    std::memcpy(to, Memory(part, bytes).data(), bytes);
    filling->header.crc[part.section][block] = Crc32c({to, bytes});
  }
  return End(store_.Commit(put.root, put.keys, *filling));
}

absl::StatusOr<KvOpId> EmbeddedClient::PutState(Instant now, const KvState& state, Instant) {
  WEIR_TRY(CheckState(state, BytesOf(state.region)));
  if (windows_ == nullptr) return End(NoStates());
  const BlockPart part{.region = state.region, .offset = state.offset};
  return End(windows_->Put(now, state.key, state.position, Memory(part, state.bytes),
                           state.domain));
}

absl::StatusOr<KvOpId> EmbeddedClient::LoadState(Instant now, const KvState& into, Instant) {
  WEIR_TRY(CheckState(into, BytesOf(into.region)));
  if (windows_ == nullptr) return End(NoStates());
  const absl::StatusOr<WindowRing::State> state = windows_->Find(now, into.key);
  if (!state.ok()) return End(state.status());
  if (state->bytes.size() > into.bytes) return End(StateTooLong());
  const BlockPart part{.region = into.region, .offset = into.offset};
  std::memcpy(Memory(part, into.bytes).data(), state->bytes.data(), state->bytes.size());
  const KvOpId id = End(absl::OkStatus());
  outcomes_.back().position = state->position;
  outcomes_.back().bytes = static_cast<uint32_t>(state->bytes.size());
  return id;
}

absl::StatusOr<KvOpId> EmbeddedClient::EraseDomain(Instant, const DomainId& domain, Instant) {
  if (windows_ != nullptr) windows_->EraseDomain(domain);
  return End(store_.EraseDomain(domain));
}

void EmbeddedClient::Poll(Instant now, std::vector<KvOutcome>* out) {
  polled_ = now;
  std::vector<TieredStore::Fetched> fetched;
  store_.Poll(IoWait::kNow, &fetched);
  for (auto load = loads_.begin(); load != loads_.end();) {
    absl::Status status;
    for (const TieredStore::Fetched& one : fetched) {
      for (Piece& piece : load->second.pieces) {
        if (piece.read != one.id) continue;
        piece.read = 0;
        if (!one.status.ok() && status.ok()) status = one.status;
      }
    }
    if (status.ok() && !Advance(&load->second, &status)) {
      ++load;
      continue;
    }
    deadlines_.Release(load->first);
    outcomes_.push_back({.id = load->first, .status = status});
    load = loads_.erase(load);
  }
  std::vector<KvOpId> late;
  deadlines_.Expire(now, &late);
  for (const KvOpId id : late) {
    loads_.erase(id);
    outcomes_.push_back({.id = id, .status = Error(Reason::kDeadline, "the disk was too slow")});
  }
  for (KvOutcome& outcome : outcomes_) out->push_back(std::move(outcome));
  outcomes_.clear();
}

Instant EmbeddedClient::NextDeadline() const {
  if (!outcomes_.empty()) return polled_;
  const Instant next = deadlines_.NextDeadline();
  return store_.disk_busy() ? std::min(next, polled_ + kDiskPoll) : next;
}

}  // namespace weir::kv
