// SPDX-License-Identifier: Apache-2.0
#include "kvstore/node/window_ring.h"

#include <cstring>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "base/stdx/planted.h"
#include "base/stdx/status.h"
#include "base/stdx/units.h"

namespace weir::kv {
namespace {

constexpr uint32_t kPage = 4096;

struct Head {
  uint64_t generation;  // 0: nothing, or being written
  int64_t written_nanos;
  uint8_t key[32];
  uint32_t position;
  uint32_t bytes;
  uint32_t crc;       // of the state
  uint32_t head_crc;  // of the fields before
};
static_assert(sizeof(Head) == 64);
constexpr size_t kHeadCrcAt = sizeof(Head) - 4;

uint32_t CrcOf(const Head& head) {
  return Crc32c(std::as_bytes(std::span(&head, 1)).first(kHeadCrcAt));
}

}  // namespace

uint64_t WindowRing::SlotBytes(uint32_t state_bytes_max) {
  return AlignUp<uint64_t>(sizeof(Head) + uint64_t{state_bytes_max} + sizeof(uint64_t), kPage);
}

WindowRing::WindowRing(std::span<std::byte> memory, const Options& options)
    : memory_(memory), options_(options), slot_bytes_(SlotBytes(options.state_bytes_max)) {
  const uint64_t slots = memory.size() / slot_bytes_;
  WEIR_CHECK(slots > 0 && slots < UINT32_MAX);
  keys_.resize(slots);
  domains_.resize(slots);
  used_.resize(slots);
}

uint32_t WindowRing::NextSlot() {
  while (!cold_.empty()) {
    const auto found = slot_of_.find(cold_.front());
    cold_.pop_front();
    if (found != slot_of_.end()) return found->second;
  }
  const uint32_t slot = next_;
  next_ = (next_ + 1) % slots();
  return slot;
}

absl::Status WindowRing::Put(Instant now, const BlockKey& key, Position position,
                             std::span<const std::byte> state, const DomainId& domain) {
  if (state.size() > options_.state_bytes_max) {
    return Error(Reason::kTooLarge, "a window state is larger than a slot", "state");
  }
  const auto known = slot_of_.find(key);
  const uint32_t slot = known != slot_of_.end() ? known->second : NextSlot();
  if (used_[slot]) slot_of_.erase(keys_[slot]);
  keys_[slot] = key;
  domains_[slot] = domain;
  used_[slot] = true;
  slot_of_[key] = slot;

  std::byte* at = memory_.data() + uint64_t{slot} * slot_bytes_;
  std::byte* end = at + slot_bytes_ - sizeof(uint64_t);
  // A reader of another process sees no generation, or two that differ, while the bytes change; its
  // checksum decides in any case.
  StoreAs(at, uint64_t{0});
  StoreAs(end, ++generation_);
  std::memcpy(at + sizeof(Head), state.data(), state.size());
  Head head{};
  head.generation = generation_;
  head.written_nanos = now.time_since_epoch().count();
  std::memcpy(head.key, key.bytes.data(), key.bytes.size());
  head.position = position;
  head.bytes = static_cast<uint32_t>(state.size());
  head.crc = Crc32c(state);
  head.head_crc = CrcOf(head);
  StoreAs(at, head);
  return absl::OkStatus();
}

absl::StatusOr<WindowRing::State> WindowRing::ReadSlot(Instant now, const BlockKey& key,
                                                       Duration time_to_live,
                                                       std::span<const std::byte> slot) {
  if (slot.size() < sizeof(Head) + sizeof(uint64_t)) {
    return Error(Reason::kCorrupt, "a window state is cut off");
  }
  const auto head = LoadAs<Head>(slot.data());
  const auto generation = LoadAs<uint64_t>(slot.data() + slot.size() - sizeof(uint64_t));
  const bool whole = head.generation != 0 && head.generation == generation &&
                     head.head_crc == CrcOf(head) &&
                     head.bytes <= slot.size() - sizeof(Head) - sizeof(uint64_t);
  const bool checked = !IsPlanted(Planted::kServeUnchecked);
  if (!whole && checked) {
    WEIR_REACHED("window ring: a slot was being overwritten");
    return Error(Reason::kCorrupt, "a window state is damaged or being overwritten");
  }
  if (std::memcmp(head.key, key.bytes.data(), key.bytes.size()) != 0 && checked) {
    return Error(Reason::kUnknownModel, "the slot holds another window state", "key");
  }
  int64_t age = 0;  // hostile bytes may make it anything
  if (__builtin_sub_overflow(int64_t{now.time_since_epoch().count()}, head.written_nanos, &age) ||
      age < 0 || age >= time_to_live.count()) {
    return Error(Reason::kLeaseExpired, "the window state is too old");
  }
  const std::span<const std::byte> bytes = slot.subspan(sizeof(Head), head.bytes);
  if (Crc32c(bytes) != head.crc && checked) {
    WEIR_REACHED("window ring: checksum differs");
    return Error(Reason::kCorrupt, "the checksum of a window state is wrong");
  }
  return State{head.position, bytes};
}

absl::StatusOr<Position> WindowRing::Get(Instant now, const BlockKey& key,
                                         std::vector<std::byte>* out) const {
  WEIR_ASSIGN(const State state, Find(now, key));
  out->assign(state.bytes.begin(), state.bytes.end());
  return state.position;
}

absl::StatusOr<WindowRing::State> WindowRing::Find(Instant now, const BlockKey& key) const {
  WEIR_ASSIGN(const uint32_t slot, SlotOf(key));
  return ReadSlot(now, key, options_.time_to_live, Slot(slot));
}

absl::StatusOr<uint32_t> WindowRing::SlotOf(const BlockKey& key) const {
  const auto found = slot_of_.find(key);
  if (found == slot_of_.end())
    return Error(Reason::kUnknownModel, "there is no such window state", "key");
  return found->second;
}

void WindowRing::MarkCold(const BlockKey& key) {
  if (slot_of_.contains(key) && cold_.size() < keys_.size()) cold_.push_back(key);
}

void WindowRing::EraseDomain(const DomainId& domain) {
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    if (used_[slot] && domains_[slot] == domain) Erase(BlockKey(keys_[slot]));
  }
}

void WindowRing::Erase(const BlockKey& key) {
  const auto found = slot_of_.find(key);
  if (found == slot_of_.end()) return;
  const uint32_t slot = found->second;
  std::memset(memory_.data() + uint64_t{slot} * slot_bytes_, 0, slot_bytes_);
  used_[slot] = false;
  slot_of_.erase(found);
}

}  // namespace weir::kv
