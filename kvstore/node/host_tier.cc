// SPDX-License-Identifier: Apache-2.0
#include "kvstore/node/host_tier.h"

#include <cstring>

#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "base/stdx/planted.h"
#include "base/stdx/status.h"

namespace weir::kv {

const RecordHeader& HostRef::header() const { return *tier_->slots_[slot_]->header; }

std::span<const std::byte> HostRef::payload() const {
  return tier_->BytesOf(*tier_->slots_[slot_]);
}

void HostRef::Reset() {
  if (tier_ == nullptr) return;
  HostTier::Slot& slot = *tier_->slots_[slot_];
  WEIR_CHECK(slot.refs > 0);
  if (--slot.refs == 0 && slot.state == HostTier::State::kDropped) tier_->FreeSlot(slot_);
  tier_ = nullptr;
}

HostTier::HostTier(std::span<std::byte> arena, uint64_t capacity_bytes)
    : arena_(arena), capacity_bytes_(AlignDown<uint64_t>(capacity_bytes, kRecordPage)) {
  WEIR_CHECK(arena.empty() || arena.size() >= capacity_bytes_);
  if (capacity_bytes_ == 0) return;
  holes_[0] = capacity_bytes_;
  holes_by_size_.insert({capacity_bytes_, 0});
}

std::span<std::byte> HostTier::BytesOf(const Slot& slot) const {
  return arena_.empty() ? std::span<std::byte>() : arena_.subspan(slot.at, slot.bytes);
}

// The smallest hole that is large enough.
bool HostTier::Allocate(uint64_t bytes, uint64_t* at) {
  const auto found = holes_by_size_.lower_bound({bytes, 0});
  if (found == holes_by_size_.end()) return false;
  const auto [size, place] = *found;
  holes_by_size_.erase(found);
  holes_.erase(place);
  if (size > bytes) {
    holes_[place + bytes] = size - bytes;
    holes_by_size_.insert({size - bytes, place + bytes});
  }
  *at = place;
  return true;
}

void HostTier::FreeSlot(uint32_t index) {
  Slot& slot = *slots_[index];
  uint64_t at = slot.at;
  uint64_t bytes = slot.bytes;
  auto next = holes_.lower_bound(at);
  if (next != holes_.end() && next->first == at + bytes) {
    bytes += next->second;
    holes_by_size_.erase({next->second, next->first});
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == at) {
      at = previous->first;
      bytes += previous->second;
      holes_by_size_.erase({previous->second, previous->first});
      holes_.erase(previous);
    }
  }
  holes_[at] = bytes;
  holes_by_size_.insert({bytes, at});
  stats_.held_bytes -= slot.bytes;
  const auto held = held_by_.find(slot.domain);
  if ((held->second -= slot.bytes) == 0) held_by_.erase(held);
  slot.state = State::kFree;
  slot.header.reset();
  free_slots_.push_back(index);
}

void HostTier::LinkHottest(uint32_t index) {
  Slot& slot = *slots_[index];
  slot.colder = hottest_;
  slot.hotter = kNone;
  if (hottest_ != kNone) slots_[hottest_]->hotter = index;
  hottest_ = index;
  if (coldest_ == kNone) coldest_ = index;
}

void HostTier::Unlink(uint32_t index) {
  Slot& slot = *slots_[index];
  (slot.colder == kNone ? coldest_ : slots_[slot.colder]->hotter) = slot.hotter;
  (slot.hotter == kNone ? hottest_ : slots_[slot.hotter]->colder) = slot.colder;
}

absl::Status HostTier::SetShare(const DomainId& domain, const HostShare& share) {
  uint64_t guaranteed = share.guaranteed_bytes;
  for (const auto& [other, theirs] : shares_) {
    if (other != domain) guaranteed += theirs.guaranteed_bytes;
  }
  if (guaranteed > capacity_bytes_ / 10 * 9) {
    return Error(Reason::kBadField, "more than nine tenths of the host tier would be guaranteed",
                 "guaranteed_bytes");
  }
  shares_[domain] = share;
  return absl::OkStatus();
}

uint64_t HostTier::HeldBy(const DomainId& domain) const {
  const auto found = held_by_.find(domain);
  return found == held_by_.end() ? 0 : found->second;
}

bool HostTier::EvictOne(const DomainId& domain, Whose whose, std::vector<RunId>* gone) {
  for (uint32_t index = coldest_; index != kNone; index = slots_[index]->hotter) {
    Slot& slot = *slots_[index];
    if (slot.refs > 0 || slot.writing) continue;
    if (slot.domain != domain) {
      if (whose == Whose::kOwn) continue;
      const auto share = shares_.find(slot.domain);
      if (share != shares_.end() &&
          HeldBy(slot.domain) < share->second.guaranteed_bytes + slot.bytes)
        continue;
    }
    const RunId run = slot.run;
    ++stats_.evicted;
    Drop(run);
    gone->push_back(run);
    return true;
  }
  return false;
}

absl::StatusOr<uint32_t> HostTier::Reserve(const RecordHeader& header, Instant deadline,
                                           std::vector<RunId>* gone) {
  WEIR_TRY(CheckShape(header.shape));
  const uint64_t bytes = header.shape.PayloadBytes();
  const auto share = shares_.find(header.domain);
  const uint64_t limit = share == shares_.end() ? UINT64_MAX : share->second.limit_bytes;
  while (bytes > limit || HeldBy(header.domain) > limit - bytes) {
    if (bytes <= limit && EvictOne(header.domain, Whose::kOwn, gone)) continue;
    ++stats_.refused;
    return Error(Reason::kTenantRate, "the account's share of the host tier is in use", "domain");
  }
  uint64_t at = 0;
  while (!Allocate(bytes, &at)) {
    if (bytes <= capacity_bytes_ && EvictOne(header.domain, Whose::kAny, gone)) continue;
    WEIR_REACHED("host tier: nothing that could be evicted");
    ++stats_.refused;
    return Error(Reason::kNoCapacity, "the host tier is full of what is in use");
  }
  uint32_t index = 0;
  if (free_slots_.empty()) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.push_back(std::make_unique<Slot>());
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  Slot& slot = *slots_[index];
  slot = Slot{};
  slot.state = State::kReserved;
  slot.at = at;
  slot.bytes = bytes;
  slot.deadline = deadline;
  slot.domain = header.domain;
  if (!arena_.empty()) slot.header = std::make_unique<RecordHeader>(header);
  stats_.held_bytes += bytes;
  held_by_[header.domain] += bytes;
  reservations_.insert({deadline, index});
  return index;
}

std::span<std::byte> HostTier::Payload(uint32_t reservation) {
  WEIR_CHECK(slots_[reservation]->state == State::kReserved);
  return BytesOf(*slots_[reservation]);
}

absl::Status HostTier::Commit(uint32_t reservation, RunId run, Dirty dirty) {
  Slot& slot = *slots_[reservation];
  if (slot.state == State::kReserved && slot.header) SealPayload(BytesOf(slot), slot.header.get());
  return Publish(reservation, run, dirty);
}

absl::Status HostTier::CommitSealed(uint32_t reservation, RunId run, const RecordHeader& header,
                                    Dirty dirty) {
  Slot& slot = *slots_[reservation];
  if (slot.state == State::kReserved && slot.header) *slot.header = header;
  return Publish(reservation, run, dirty);
}

absl::Status HostTier::Publish(uint32_t reservation, RunId run, Dirty dirty) {
  Slot& slot = *slots_[reservation];
  if (slot.state != State::kReserved) {
    return Error(Reason::kLeaseExpired, "the reservation is over", "reservation");
  }
  WEIR_CHECK(!slot_of_.contains(run));
  reservations_.erase({slot.deadline, reservation});
  slot.state = State::kHere;
  slot.run = run;
  slot.dirty = dirty == Dirty::kYes;
  slot_of_[run] = reservation;
  LinkHottest(reservation);
  ++stats_.records;
  return absl::OkStatus();
}

void HostTier::Abort(uint32_t reservation) {
  Slot& slot = *slots_[reservation];
  if (slot.state != State::kReserved) return;
  reservations_.erase({slot.deadline, reservation});
  FreeSlot(reservation);
}

void HostTier::Expire(Instant now) {
  while (!reservations_.empty() && reservations_.begin()->first <= now) {
    const uint32_t index = reservations_.begin()->second;
    WEIR_REACHED("host tier: a reservation expired");
    ++stats_.expired;
    Abort(index);
  }
}

// Block by block, so that the checksum finds the block in the cache.
absl::Status HostTier::Put(const RecordHeader& header, RunId run,
                           std::span<const std::byte> payload, Dirty dirty,
                           std::vector<RunId>* gone) {
  WEIR_ASSIGN(const uint32_t reservation, Reserve(header, kNever, gone));
  Slot& slot = *slots_[reservation];
  if (arena_.empty()) return Publish(reservation, run, dirty);
  WEIR_CHECK(payload.size() == slot.bytes);
  const RecordShape& shape = slot.header->shape;
  std::byte* to = BytesOf(slot).data();
  if (IsPlanted(Planted::kCopyTwice)) std::memcpy(to, payload.data(), payload.size());
  for (uint32_t i = 0; i < shape.sections; ++i) {
    const uint32_t block_bytes = shape.section[i].block_bytes;
    for (uint32_t j = 0; j < shape.blocks; ++j) {
      const uint64_t at = shape.BlockAt(i, j);
      std::memcpy(to + at, payload.data() + at, block_bytes);
      slot.header->crc[i][j] = Crc32c({to + at, block_bytes});
    }
    const uint64_t end = shape.BlockAt(i, shape.blocks);
    std::memset(to + end, 0, shape.SectionAt(i + 1) - end);
  }
  return Publish(reservation, run, dirty);
}

HostRef HostTier::Get(RunId run) {
  const auto found = slot_of_.find(run);
  if (found == slot_of_.end()) return {};
  ++slots_[found->second]->refs;
  return HostRef(this, found->second);
}

absl::Status HostTier::CopyOut(const HostRef& ref, uint32_t section, uint32_t first, uint32_t count,
                               std::span<std::byte> out) const {
  const Slot& slot = *slots_[ref.slot_];
  const RecordShape& shape = slot.header->shape;
  if (section >= shape.sections || first >= shape.blocks || count > shape.blocks - first ||
      out.size() != uint64_t{count} * shape.section[section].block_bytes) {
    return Error(Reason::kBadField, "blocks are asked for that the record has not", "count");
  }
  const uint32_t block_bytes = shape.section[section].block_bytes;
  const std::byte* from = BytesOf(slot).data() + shape.BlockAt(section, first);
  for (uint32_t j = 0; j < count; ++j) {
    const std::span<std::byte> block = out.subspan(uint64_t{j} * block_bytes, block_bytes);
    std::memcpy(block.data(), from + uint64_t{j} * block_bytes, block_bytes);
    WEIR_TRY(CheckBlock(*slot.header, section, first + j, block));
  }
  return absl::OkStatus();
}

void HostTier::Touch(RunId run) {
  const auto found = slot_of_.find(run);
  if (found == slot_of_.end() || found->second == hottest_) return;
  Unlink(found->second);
  LinkHottest(found->second);
}

void HostTier::Drop(RunId run) {
  const auto found = slot_of_.find(run);
  if (found == slot_of_.end()) return;
  const uint32_t index = found->second;
  slot_of_.erase(found);
  Unlink(index);
  --stats_.records;
  if (slots_[index]->refs == 0)
    FreeSlot(index);
  else
    slots_[index]->state = State::kDropped;
}

HostRef HostTier::NextToWrite(uint64_t free_bytes, RunId* run) {
  uint64_t passed =
      capacity_bytes_ - stats_.held_bytes;  // free, or soon to be, counted from the coldest
  for (uint32_t index = coldest_; index != kNone && passed < free_bytes;
       index = slots_[index]->hotter) {
    Slot& slot = *slots_[index];
    if (slot.dirty && !slot.writing) {
      slot.writing = true;
      *run = slot.run;
      ++slot.refs;
      return HostRef(this, index);
    }
    passed += slot.bytes;
  }
  return {};
}

void HostTier::Written(RunId run, bool ok) {
  const auto found = slot_of_.find(run);
  if (found == slot_of_.end()) return;
  slots_[found->second]->writing = false;
  if (ok) slots_[found->second]->dirty = false;
}

}  // namespace weir::kv
