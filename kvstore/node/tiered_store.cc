// SPDX-License-Identifier: Apache-2.0
#include "kvstore/node/tiered_store.h"

#include <algorithm>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "base/stdx/status.h"

namespace weir::kv {

TieredStore::TieredStore(const TieredOptions& options)
    : options_(options), index_(options.runs_max), host_(options.arena, options.host_bytes) {}

absl::StatusOr<std::unique_ptr<TieredStore>> TieredStore::Open(const TieredOptions& options) {
  std::unique_ptr<TieredStore> store(new TieredStore(options));
  if (options.disk_path.empty()) return store;
  WEIR_ASSIGN(std::unique_ptr<Directory> directory,
              OpenDirectory(options.disk_path, options.directory));
  WEIR_ASSIGN(store->disk_,
              SegmentLog::Open(std::move(directory), options.disk,
                               [&](const FoundRecord& record) { return store->Found(record); }));
  return store;
}

std::unique_ptr<TieredStore> TieredStore::Create(const TieredOptions& options,
                                                 std::unique_ptr<BlobStore> disk) {
  std::unique_ptr<TieredStore> store(new TieredStore(options));
  store->disk_ = std::move(disk);
  return store;
}

uint16_t TieredStore::Intern(const DomainId& domain) {
  const auto [entry, fresh] =
      domain_of_.try_emplace(domain, static_cast<uint16_t>(domains_.size()));
  // Beyond 65,536 domains they share numbers, which only makes an erase take more than it was asked
  // to.
  if (fresh && domains_.size() < UINT16_MAX) domains_.push_back(domain);
  return entry->second;
}

BlobTag TieredStore::Found(const FoundRecord& record) {
  NewRun run{.domain = Intern(record.domain),
             .parent = record.parent,
             .last = record.last,
             .fingerprints = std::span(record.fingerprints).first(record.blocks),
             .approx = record.approx};
  const absl::StatusOr<RunId> id = index_.Insert(run);
  if (!id.ok()) return 0;  // more runs on the disk than the index takes: they are never found
  index_.SetTier(*id, RunIndex::kDisk);
  index_.SetPlace(*id, record.place);
  return *id;
}

uint32_t TieredStore::Match(const BlockKey& root, std::span<const BlockKey> keys,
                            RunIndex::Want want, std::vector<Hit>* out) {
  out->clear();
  const uint32_t covered = index_.Match(root, keys, want, &hits_);
  for (const RunIndex::Hit& hit : hits_) {
    out->push_back({hit.run, hit.first, hit.count, hit.at, host_.Holds(hit.run)});
  }
  TouchChain(covered);
  return covered;
}

// The stretches that begin before block `end`, from the end, so that the end of a chain is colder
// than its root.
void TieredStore::TouchChain(uint32_t end) {
  for (auto hit = hits_.rbegin(); hit != hits_.rend(); ++hit) {
    if (hit->at >= end) continue;
    host_.Touch(hit->run);
    if (IsPlanted(Planted::kEvictParents)) return;
  }
}

HostRef TieredStore::Get(const Hit& hit, const BlockKey& last) {
  HostRef ref = host_.Get(hit.run);
  if (!ref) return {};
  const RecordHeader& header = ref.header();
  const uint32_t end = hit.first + hit.count;
  if (end == 0 || end > header.shape.blocks || header.keys[end - 1] != last) {
    WEIR_REACHED("tiered store: another run than the index promised");
    return {};
  }
  return ref;
}

RecordHeader TieredStore::WithKeys(RecordHeader header, const BlockKey& root,
                                   std::span<const BlockKey> keys, uint32_t first) const {
  header.parent = first == 0 ? root : keys[first - 1];
  std::copy_n(keys.begin() + first, header.shape.blocks, header.keys.begin());
  return header;
}

absl::StatusOr<TieredStore::Before> TieredStore::CheckPut(const BlockKey& root,
                                                         std::span<const BlockKey> keys,
                                                         uint32_t first,
                                                         const RecordHeader& header) {
  WEIR_TRY(CheckShape(header.shape));
  if (first > keys.size() || header.shape.blocks > keys.size() - first) {
    return Error(Reason::kBadField, "a put names blocks that the prompt has not", "first");
  }
  const uint32_t end = first + header.shape.blocks;
  const auto want = header.approx ? RunIndex::Want::kAny : RunIndex::Want::kExact;
  const uint32_t covered = index_.Match(root, keys.first(end), want, &hits_);
  if (covered == end) return Before::kHere;
  if (covered < first) {
    ++put_refused_;
    return Error(Reason::kUnknownModel, "the blocks before these are not here", "first");
  }
  return Before::kThere;
}

// References to what a put hangs on, so that it does not go to make room for it; after CheckPut.
// Returns the run that holds the block before it.
RunId TieredStore::HoldChain(uint32_t first, std::vector<HostRef>* chain) {
  RunId parent = 0;
  for (const RunIndex::Hit& hit : hits_) {
    if (hit.at >= first) break;
    parent = hit.run;
    if (chain == nullptr) continue;
    if (HostRef ref = host_.Get(hit.run)) chain->push_back(std::move(ref));
  }
  return parent;
}

absl::StatusOr<RunId> TieredStore::InsertRun(const RecordHeader& header, RunId parent) {
  std::array<uint16_t, kRecordBlocksMax> prints;
  for (uint32_t i = 0; i < header.shape.blocks; ++i) prints[i] = header.keys[i].fingerprint();
  absl::StatusOr<RunId> id =
      index_.Insert({.domain = Intern(header.domain),
                     .parent = header.parent.index(),
                     .last = header.last().index(),
                     .fingerprints = std::span(prints).first(header.shape.blocks),
                     .approx = header.approx,
                     .parent_run = parent});
  if (!id.ok()) ++put_refused_;
  return id;
}

absl::Status TieredStore::Put(const BlockKey& root, std::span<const BlockKey> keys, uint32_t first,
                              RecordHeader header, std::span<const std::byte> payload) {
  WEIR_ASSIGN(const Before before, CheckPut(root, keys, first, header));
  if (!options_.arena.empty() && payload.size() != header.shape.PayloadBytes()) {
    return Error(Reason::kBadField, "a payload has another size than its shape", "payload");
  }
  if (before == Before::kHere) return absl::OkStatus();
  header = WithKeys(header, root, keys, first);
  std::vector<HostRef> chain;
  WEIR_ASSIGN(const RunId id, InsertRun(header, HoldChain(first, &chain)));
  std::vector<RunId> gone;
  const absl::Status put =
      host_.Put(header, id, payload, disk_ ? HostTier::Dirty::kYes : HostTier::Dirty::kNo, &gone);
  if (put.ok())
    index_.SetTier(id, RunIndex::kHost);
  else
    ++put_refused_;
  // The chain was touched when it was matched, root last; the new end belongs below all of it.
  TouchChain(first);
  chain.clear();
  LostFromHost(gone);
  if (!put.ok() && index_.Holds(id)) RemoveRun(id);
  return put;
}

absl::StatusOr<TieredStore::Filling> TieredStore::Reserve(const BlockKey& root,
                                                          std::span<const BlockKey> keys,
                                                          uint32_t first, RecordHeader header) {
  WEIR_ASSIGN(const Before before, CheckPut(root, keys, first, header));
  Filling filling{.here = before == Before::kHere, .first = first};
  if (filling.here) return filling;
  filling.header = WithKeys(header, root, keys, first);
  std::vector<HostRef> chain;
  HoldChain(first, &chain);
  std::vector<RunId> gone;
  const absl::StatusOr<uint32_t> reservation = host_.Reserve(filling.header, kNever, &gone);
  chain.clear();
  LostFromHost(gone);
  if (!reservation.ok()) {
    ++put_refused_;
    return reservation.status();
  }
  filling.reservation = *reservation;
  filling.payload = host_.Payload(*reservation);
  return filling;
}

absl::Status TieredStore::Commit(const BlockKey& root, std::span<const BlockKey> keys,
                                 const Filling& filling) {
  const absl::StatusOr<Before> before = CheckPut(root, keys, filling.first, filling.header);
  absl::StatusOr<RunId> id = 0;
  if (before.ok() && *before == Before::kThere)
    id = InsertRun(filling.header, HoldChain(filling.first, nullptr));
  if (!before.ok() || *before == Before::kHere || !id.ok()) {
    WEIR_REACHED("tiered store: a filled record is not wanted any more");
    Abort(filling);
    return before.ok() ? id.status() : before.status();
  }
  ClearGaps(filling.header.shape, filling.payload);
  WEIR_TRY(host_.CommitSealed(filling.reservation, *id, filling.header,
                              disk_ ? HostTier::Dirty::kYes : HostTier::Dirty::kNo));
  index_.SetTier(*id, RunIndex::kHost);
  TouchChain(filling.first);
  return absl::OkStatus();
}

// Runs that left the host's memory; without a copy on the disk they are gone, and what hangs on
// them.
void TieredStore::LostFromHost(const std::vector<RunId>& runs) {
  for (const RunId run : runs) {
    if (!index_.Holds(run)) continue;  // went along with one before
    index_.ClearTier(run, RunIndex::kHost);
    if ((index_.tiers(run) & RunIndex::kDisk) != 0) continue;
    if (disk_ != nullptr) ++spills_dropped_;
    RemoveRun(run);
  }
}

void TieredStore::RemoveRun(RunId run) {
  std::vector<RunId> gone;
  index_.Remove(run, &gone);
  for (const RunId one : gone) {
    host_.Drop(one);
    // The entry is free but not yet used again, so what it said of the disk can still be read.
    if (disk_ != nullptr && (index_.tiers(one) & RunIndex::kDisk) != 0)
      disk_->Drop(index_.place(one));
  }
}

void TieredStore::WriteCold() {
  const auto wanted =
      static_cast<uint64_t>(options_.host_free_share * static_cast<double>(host_.capacity_bytes()));
  while (disk_ != nullptr && !options_.arena.empty() && writing_bytes_ < options_.write_bytes_max) {
    RunId run = 0;
    HostRef ref = host_.NextToWrite(wanted, &run);
    if (!ref) return;
    const absl::StatusOr<BlobId> id = disk_->Append(ref.header(), ref.payload(), run);
    if (!id.ok()) {
      host_.Written(run, false);
      return;
    }
    const uint64_t bytes = ref.payload().size();
    writing_bytes_ += bytes;
    writing_.emplace(*id, Writing{run, std::move(ref), bytes});
  }
}

absl::StatusOr<BlobId> TieredStore::Fetch(const Hit& hit, BlobRead read) {
  if (disk_ == nullptr || !index_.Holds(hit.run) ||
      (index_.tiers(hit.run) & RunIndex::kDisk) == 0) {
    return Error(Reason::kUnknownModel, "the run is not on the disk", "run");
  }
  read.place = index_.place(hit.run);
  read.first = hit.first;
  read.count = hit.count;
  return disk_->Read(read);
}

absl::StatusOr<BlobId> TieredStore::Promote(const Hit& hit, RecordShape sections,
                                            const BlockKey& last) {
  if (disk_ == nullptr || !index_.Holds(hit.run) ||
      (index_.tiers(hit.run) & RunIndex::kDisk) == 0) {
    return Error(Reason::kUnknownModel, "the run is not on the disk", "run");
  }
  const Place place = index_.place(hit.run);
  for (const auto& [id, promotion] : promotions_) {
    if (promotion.run == hit.run && promotion.place == place) return id;
  }
  sections.blocks = index_.BlocksOf(hit.run);
  WEIR_TRY(CheckShape(sections));
  const uint64_t bytes = sections.PayloadBytes();
  const auto most =
      static_cast<uint64_t>(options_.promote_share * static_cast<double>(host_.capacity_bytes()));
  if (promoting_bytes_ > 0 && promoting_bytes_ + bytes > most) {
    return Error(Reason::kQueueFull, "as much is read from the disk as the host tier allows");
  }
  auto header = std::make_unique<RecordHeader>();
  header->shape = sections;
  header->domain = domains_[index_.DomainOf(hit.run)];
  std::vector<RunId> gone;
  const absl::StatusOr<uint32_t> reservation = host_.Reserve(*header, kNever, &gone);
  LostFromHost(gone);
  if (!reservation.ok()) return reservation.status();
  absl::StatusOr<BlobId> id = Error(Reason::kUnknownModel, "the run went to make room", "run");
  if (index_.Holds(hit.run) && index_.place(hit.run) == place) {
    id = disk_->Read({.place = place,
                      .shape = sections,
                      .first = 0,
                      .count = sections.blocks,
                      .sections = (1u << sections.sections) - 1,
                      .last = last,
                      .last_at = hit.first + hit.count - 1,
                      .into = host_.Payload(*reservation),
                      .header = header.get()});
  }
  if (!id.ok()) {
    host_.Abort(*reservation);
    return id;
  }
  promoting_bytes_ += bytes;
  promotions_.emplace(*id, Promotion{hit.run, place, *reservation, bytes, std::move(header)});
  return id;
}

absl::Status TieredStore::EndPromotion(Promotion& promotion, absl::Status read) {
  promoting_bytes_ -= promotion.bytes;
  const RunId run = promotion.run;
  // Its number may be another run's meanwhile: the place tells.
  const bool same = index_.Holds(run) && (index_.tiers(run) & RunIndex::kDisk) != 0 &&
                    index_.place(run) == promotion.place;
  if (!read.ok() || !same || host_.Holds(run)) {
    host_.Abort(promotion.reservation);
    if (!read.ok() || same) return read;
    WEIR_REACHED("tiered store: a run went while it was read");
    return Error(Reason::kUnknownModel, "the run went while it was read", "run");
  }
  WEIR_TRY(host_.CommitSealed(promotion.reservation, run, *promotion.header, HostTier::Dirty::kNo));
  index_.SetTier(run, RunIndex::kHost);
  ++promoted_;
  return absl::OkStatus();
}

void TieredStore::Poll(IoWait wait, std::vector<Fetched>* out) {
  if (disk_ == nullptr) return;
  WriteCold();
  events_.clear();
  disk_->Poll(wait, &events_);
  for (BlobEvent& event : events_) TakeEvent(event, out);
}

void TieredStore::TakeEvent(BlobEvent& event, std::vector<Fetched>* out) {
  const RunId run = event.tag;
  switch (event.kind) {
    case BlobEvent::Kind::kRead: {
      const auto promotion = promotions_.find(event.id);
      if (promotion != promotions_.end()) {
        event.status = EndPromotion(promotion->second, std::move(event.status));
        promotions_.erase(promotion);
      }
      out->push_back({event.id, std::move(event.status)});
      break;
    }
    case BlobEvent::Kind::kAppended: {
      const auto found = writing_.find(event.id);
      WEIR_CHECK(found != writing_.end());
      // The run may have gone meanwhile, and its number may be another's: the reference tells.
      const bool same = host_.Holds(run) && &host_.Get(run).header() == &found->second.ref.header();
      writing_bytes_ -= found->second.bytes;
      writing_.erase(found);
      if (!same) {
        if (event.status.ok()) disk_->Drop(event.place);
        break;
      }
      host_.Written(run, event.status.ok());
      if (!event.status.ok()) break;
      index_.SetTier(run, RunIndex::kDisk);
      index_.SetPlace(run, event.place);
      break;
    }
    case BlobEvent::Kind::kMoved:
      if (index_.Holds(run) && index_.place(run) == event.old_place)
        index_.SetPlace(run, event.place);
      else
        disk_->Drop(event.place);
      break;
    case BlobEvent::Kind::kGone:
      if (!index_.Holds(run) || (index_.tiers(run) & RunIndex::kDisk) == 0 ||
          !(index_.place(run) == event.place))
        break;
      index_.ClearTier(run, RunIndex::kDisk);
      if ((index_.tiers(run) & RunIndex::kHost) == 0) RemoveRun(run);
      break;
  }
}

absl::Status TieredStore::EraseDomain(const DomainId& domain) {
  const auto found = domain_of_.find(domain);
  if (found != domain_of_.end()) {
    std::vector<RunId> runs;
    index_.RunsOf(found->second, &runs);
    for (const RunId run : runs) {
      if (index_.Holds(run)) RemoveRun(run);
    }
  }
  return disk_ == nullptr ? absl::OkStatus() : disk_->EraseDomain(domain);
}

TieredStats TieredStore::stats() const {
  TieredStats stats;
  stats.host = host_.stats();
  if (disk_ != nullptr) stats.disk = disk_->stats();
  stats.runs = index_.size();
  stats.index_bytes = index_.MemoryBytes() + stats.disk.index_bytes;
  stats.spills_dropped = spills_dropped_;
  stats.put_refused = put_refused_;
  stats.promoted = promoted_;
  stats.disk_work = static_cast<uint32_t>(writing_.size() + promotions_.size());
  return stats;
}

}  // namespace weir::kv
