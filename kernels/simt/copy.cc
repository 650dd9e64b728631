// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous copies. cp.async is a plain write of its thread that lands late; bulk copies are the
// copy engine's own, which sees plain writes only through a fence. What they will write counts as
// theirs from the moment they are issued, what they read until they are done; the bytes move when
// they land.
#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/simt/machine.h"

namespace weir::kernels::simt {
namespace {

void Move(const Piece& piece) {
  if (piece.from == nullptr) {
    std::memset(piece.to, 0, piece.bytes);
  } else {
    std::memcpy(piece.to, piece.from, piece.bytes);
  }
}

void LandOwn(Fiber* fiber, const std::vector<PendingCopy>& copies) {
  for (const PendingCopy& copy : copies) {
    for (const Piece& piece : copy.pieces) {
      Move(piece);
      MarkLanded(fiber->block, piece, fiber->thread, /*plain=*/true);
    }
  }
}

bool Aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

void Misaligned(const char* what, Site at, const char* text) {
  g_machine->report.Add(FindingKind::kMisaligned, {what, at}, text);
}

// What a load into shared memory claims: its source is read and its destination taken.
void Claim(Fiber* self, const std::vector<Piece>& pieces, Access write, const Origin& origin) {
  for (const Piece& piece : pieces) {
    if (piece.from != nullptr) {
      CheckAccess(self, piece.from, piece.bytes,
                  write == Access::kAsyncWrite ? Access::kAsyncCopyRead : Access::kCopyRead,
                  origin);
    }
    CheckAccess(self, piece.to, piece.bytes, write, origin);
    MarkFlag(self->block, piece.to, piece.bytes, kLanding, true);
  }
}

void CountTraffic(const std::vector<Piece>& pieces, bool write) {
  Counters& counters = g_machine->report.counters;
  for (const Piece& piece : pieces) {
    if (piece.from == nullptr) continue;
    const uint64_t sectors = (piece.bytes + 31) / 32;
    counters.global_sectors += sectors;
    counters.global_ideal += sectors;
    (write ? counters.global_written_bytes : counters.global_read_bytes) += piece.bytes;
  }
}

void IssueLoad(std::vector<Piece> pieces, uint32_t bytes, uint64_t* barrier, const Origin& origin) {
  Fiber* self = Self();
  ++g_machine->report.counters.of(Instruction::kBulk);
  CountTraffic(pieces, /*write=*/false);
  Claim(self, pieces, Access::kAsyncWrite, origin);
  Flight flight;
  flight.block = self->block;
  flight.fiber = self;
  flight.pieces = std::move(pieces);
  flight.counted_bytes = bytes;
  flight.mbarrier = WindowOffset(*self->block, barrier);
  flight.at = origin.site;
  g_machine->Add(std::move(flight));
}

void IssueStore(std::vector<Piece> pieces, const Origin& origin) {
  Fiber* self = Self();
  ++g_machine->report.counters.of(Instruction::kBulk);
  CountTraffic(pieces, /*write=*/true);
  for (const Piece& piece : pieces) {
    CheckAccess(self, piece.from, piece.bytes, Access::kAsyncCopyRead, origin);
    MarkFlag(self->block, piece.from, piece.bytes, kLeaving, true);
    CheckAccess(self, piece.to, piece.bytes, Access::kAsyncWrite, origin);
    MarkFlag(self->block, piece.to, piece.bytes, kLanding, true);
  }
  Flight flight;
  flight.block = self->block;
  flight.fiber = self;
  flight.pieces = std::move(pieces);
  flight.store = true;
  flight.at = origin.site;
  self->open_stores.push_back(g_machine->flights_made);
  g_machine->Add(std::move(flight));
}

// The pieces of one box, row by row of 16-byte chunks in the order of shared memory. `store` turns
// them around and leaves out what lies outside the tensor, which a load fills with zeros.
std::vector<Piece> BoxPieces(const TensorMap& map, const int* at, unsigned char* shared,
                             uint32_t shared_offset, bool store) {
  std::vector<Piece> pieces;
  const uint32_t row_bytes = map.box[0] * static_cast<uint32_t>(map.element_bytes);
  const uint32_t rows = BoxBytes(map) / row_bytes;
  for (uint32_t row = 0; row < rows; ++row) {
    const unsigned char* base = map.base;
    bool inside = true;
    uint32_t rest = row;
    for (size_t d = 1; d < static_cast<size_t>(map.rank); ++d) {
      const int64_t index = at[d] + static_cast<int64_t>(rest % map.box[d]);
      rest /= map.box[d];
      inside = inside && index >= 0 && index < static_cast<int64_t>(map.extent[d]);
      base += index * static_cast<int64_t>(map.stride_bytes[d]);
    }
    for (uint32_t chunk = 0; chunk < row_bytes; chunk += 16) {
      const int64_t first = int64_t{at[0]} * map.element_bytes + chunk;
      const auto end = static_cast<int64_t>(map.extent[0]) * map.element_bytes;
      const uint32_t size = std::min(16u, row_bytes - chunk);
      const int64_t present = inside && first >= 0 ? std::clamp<int64_t>(end - first, 0, size) : 0;
      const uint32_t linear = shared_offset + row * row_bytes + chunk;
      unsigned char* here = shared + SwizzleOffset(map.swizzle, linear) - shared_offset;
      unsigned char* there = const_cast<unsigned char*>(base) + first;
      const auto bytes = static_cast<size_t>(present);
      if (store) {
        if (bytes > 0) pieces.push_back({there, here, bytes});
        continue;
      }
      if (bytes > 0) pieces.push_back({here, there, bytes});
      if (bytes < size) pieces.push_back({here + bytes, nullptr, size - bytes});
    }
  }
  return pieces;
}

bool ValidBox(const TensorMap& map, const void* shared, const char* what, Site at) {
  const uint32_t row_bytes = map.box[0] * static_cast<uint32_t>(map.element_bytes);
  const size_t span = map.swizzle == Swizzle::kNone ? 256 : 16u << static_cast<int>(map.swizzle);
  bool valid = map.rank >= 1 && map.rank <= 5 && row_bytes % 16 == 0 &&
               (map.swizzle == Swizzle::kNone || row_bytes <= span) && Aligned(map.base, 16) &&
               Aligned(shared, 128);
  for (size_t d = 0; d < static_cast<size_t>(map.rank); ++d) {
    valid = valid && map.box[d] >= 1 && map.box[d] <= 256;
    if (d > 0) valid = valid && map.stride_bytes[d] % 16 == 0;
  }
  if (!valid) {
    g_machine->report.Add(FindingKind::kMisuse, {what, at},
                          "a box has at most five extents of 256, rows of 16-byte chunks no longer "
                          "than its swizzle, a tensor on 16 bytes and shared memory on 128");
  }
  return valid;
}

}  // namespace

void Machine::Add(Flight flight) {
  flight.number = flights_made++;
  idle_yields = 0;
  flights.push_back(std::move(flight));
  if (options.landing == Landing::kEarly || (Flip() && Flip())) LandOne();
}

bool Machine::LandOne() {
  if (flights.empty()) return false;
  size_t index = 0;
  if (options.seed != 0) {
    Flip();
    index = random_ % flights.size();
  }
  const Flight flight = std::move(flights[index]);
  flights.erase(flights.begin() + static_cast<std::ptrdiff_t>(index));
  Land(flight);
  return true;
}

void Machine::LandStore(uint64_t number) {
  for (auto at = flights.begin(); at != flights.end(); ++at) {
    if (at->number != number) continue;
    const Flight flight = std::move(*at);
    flights.erase(at);
    Land(flight);
    return;
  }
}

void Land(const Flight& flight) {
  Block* block = flight.block;
  int actor = flight.fiber->thread;
  const auto m = block->mbarriers.find(flight.mbarrier);
  const bool counted = !flight.store && m != block->mbarriers.end();
  if (counted) actor = m->second.agent;
  for (const Piece& piece : flight.pieces) {
    Move(piece);
    MarkLanded(block, piece, actor, /*plain=*/flight.arrives);
    if (flight.store) MarkFlag(block, piece.from, piece.bytes, kLeaving, false);
  }
  if (!flight.store) {
    MbarrierLanded(block, flight.mbarrier, flight.counted_bytes, flight.arrives, flight.at);
  }
}

void CopyAsync(void* to, const void* from, int room, int bytes, Site at) {
  Fiber* self = Self();
  ++g_machine->report.counters.of(Instruction::kCpAsync);
  const auto size = static_cast<size_t>(room);
  if (!Aligned(to, size) || !Aligned(from, size) || bytes < 0 || bytes > room) {
    Misaligned("cp.async", at,
               "wants both addresses aligned to its size, and no more bytes than it");
    return;
  }
  auto* const shared = static_cast<unsigned char*>(to);
  const auto given = static_cast<size_t>(bytes);
  PendingCopy copy{{}, at};
  if (given > 0) copy.pieces.push_back({shared, static_cast<const unsigned char*>(from), given});
  if (given < size) copy.pieces.push_back({shared + given, nullptr, size - given});
  CountTraffic(copy.pieces, /*write=*/false);
  Claim(self, copy.pieces, Access::kWrite, {"cp.async", at});
  // A copy may land before anybody waits for it; its bytes stay out of bounds until then.
  if (g_machine->options.landing == Landing::kEarly || g_machine->Flip()) {
    for (const Piece& piece : copy.pieces) Move(piece);
  }
  self->open_copies.push_back(std::move(copy));
}

void CopyCommit() {
  Fiber* self = Self();
  self->copy_groups.push_back(std::move(self->open_copies));
  self->open_copies.clear();
}

void CopyWait(int groups, Site at) {
  Fiber* self = Self();
  if (g_machine->Sabotaged(Sabotage::kSkipCopyWait, at)) return;
  if (g_machine->Sabotaged(Sabotage::kWaitOneLess, at)) ++groups;
  while (static_cast<int>(self->copy_groups.size()) > groups) {
    LandOwn(self, self->copy_groups.front());
    self->copy_groups.pop_front();
  }
}

// The arrival comes when all copies that the thread has issued so far have landed.
void CopyArrive(uint64_t* barrier, Site at) {
  Fiber* self = Self();
  Flight flight;
  flight.block = self->block;
  flight.fiber = self;
  flight.mbarrier = WindowOffset(*self->block, barrier);
  flight.arrives = true;
  flight.at = at;
  self->copy_groups.push_back(std::move(self->open_copies));
  self->open_copies.clear();
  for (const std::vector<PendingCopy>& group : self->copy_groups) {
    for (const PendingCopy& copy : group) {
      flight.pieces.insert(flight.pieces.end(), copy.pieces.begin(), copy.pieces.end());
    }
  }
  self->copy_groups.clear();
  g_machine->Add(std::move(flight));
}

void BulkLoad(void* to, const void* from, uint32_t bytes, uint64_t* barrier, Site at) {
  if (!Aligned(to, 16) || !Aligned(from, 16) || bytes % 16 != 0) {
    return Misaligned("cp.async.bulk", at, "wants addresses and size in multiples of 16");
  }
  IssueLoad({{static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes}},
            bytes, barrier, {"cp.async.bulk", at});
}

void BulkStore(void* to, const void* from, uint32_t bytes, Site at) {
  if (!Aligned(to, 16) || !Aligned(from, 16) || bytes % 16 != 0) {
    return Misaligned("cp.async.bulk store", at, "wants addresses and size in multiples of 16");
  }
  IssueStore({{static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes}},
             {"cp.async.bulk store", at});
}

void TensorLoad(void* to, const TensorMap* map, const int* at_element, uint64_t* barrier, Site at) {
  if (!ValidBox(*map, to, "tensor load", at)) return;
  auto* const shared = static_cast<unsigned char*>(to);
  IssueLoad(BoxPieces(*map, at_element, shared, WindowOffset(*Self()->block, to), false),
            BoxBytes(*map), barrier, {"tensor load", at});
}

void TensorStore(const TensorMap* map, const int* at_element, const void* from, Site at) {
  if (!ValidBox(*map, from, "tensor store", at)) return;
  auto* const shared = static_cast<unsigned char*>(const_cast<void*>(from));
  IssueStore(BoxPieces(*map, at_element, shared, WindowOffset(*Self()->block, from), true),
             {"tensor store", at});
}

void StoreCommit() {
  Fiber* self = Self();
  self->store_groups.push_back(std::move(self->open_stores));
  self->open_stores.clear();
}

void StoreWait(int groups, Site at) {
  Fiber* self = Self();
  if (g_machine->Sabotaged(Sabotage::kSkipStoreWait, at)) return;
  while (static_cast<int>(self->store_groups.size()) > groups) {
    for (const uint64_t number : self->store_groups.front()) g_machine->LandStore(number);
    self->store_groups.pop_front();
  }
}

void FenceProxy(Site at) {
  Fiber* self = Self();
  if (!g_machine->options.check || g_machine->Sabotaged(Sabotage::kSkipProxyFence, at)) return;
  self->block->clocks.Snapshot(self->thread, &self->fenced);
  self->proxy_fence = self->block->clocks.Tick(self->thread);
  for (auto& [offset, m] : self->block->mbarriers) {
    if (ActorOf(m.made) == self->thread) m.fenced = true;
  }
}

}  // namespace weir::kernels::simt
