// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/traffic.h"

#include <algorithm>
#include <set>

namespace weir::kernels::simt {
namespace {

constexpr size_t kSectorBytes = 32;
constexpr size_t kPassBytes = 128;  // 32 banks of 4 bytes

}  // namespace

uint64_t BankPasses(const uintptr_t* address, int count, size_t bytes) {
  std::array<std::set<uintptr_t>, 32> words;  // by bank
  for (int i = 0; i < count; ++i) {
    for (uintptr_t word = address[i] / 4; word <= (address[i] + bytes - 1) / 4; ++word) {
      words[word % 32].insert(word);
    }
  }
  size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return most;
}

void Traffic::Note(Space space, const void* pc, int thread, uintptr_t address, size_t bytes,
                   bool write, Counters* counters) {
  Place& place = places_[{pc, thread / 32}];
  place.space = space;
  place.bytes = bytes;
  place.write = write;
  const auto lane = static_cast<size_t>(thread % 32);
  const uint64_t number = place.seen[lane]++;
  while (place.first + place.pending.size() <= number) place.pending.emplace_back();
  if (number < place.first) return;  // settled long ago by a lane that lagged far behind
  WarpAccess& access = place.pending[number - place.first];
  access.mask |= 1u << lane;
  access.address[lane] = address;
  while (!place.pending.empty() && place.pending.front().mask == ~0u) {
    Count(place, place.pending.front(), counters);
    place.pending.pop_front();
    ++place.first;
  }
}

void Traffic::Settle(Counters* counters) {
  for (const auto& [where, place] : places_) {
    for (const WarpAccess& access : place.pending) Count(place, access, counters);
  }
  places_.clear();
}

void Traffic::Count(const Place& place, const WarpAccess& access, Counters* counters) {
  std::array<uintptr_t, 32> address;
  int lanes = 0;
  for (size_t lane = 0; lane < 32; ++lane) {
    if ((access.mask >> lane & 1) != 0) address[lanes++] = access.address[lane];
  }
  if (lanes == 0) return;
  if (place.space == Space::kShared) {
    // Wide accesses go in parts of as many lanes as fill the banks.
    const int part = static_cast<int>(kPassBytes / std::max<size_t>(place.bytes, 4));
    for (int i = 0; i < lanes; i += part) {
      counters->shared_transactions +=
          BankPasses(address.data() + i, std::min(part, lanes - i), place.bytes);
      ++counters->shared_ideal;
    }
    return;
  }
  std::set<uintptr_t> sectors;
  std::set<uintptr_t> distinct;
  for (int i = 0; i < lanes; ++i) {
    distinct.insert(address[i]);
    for (uintptr_t s = address[i] / kSectorBytes;
         s <= (address[i] + place.bytes - 1) / kSectorBytes; ++s) {
      sectors.insert(s);
    }
  }
  counters->global_sectors += sectors.size();
  counters->global_ideal += (distinct.size() * place.bytes + kSectorBytes - 1) / kSectorBytes;
  (place.write ? counters->global_written_bytes : counters->global_read_bytes) +=
      sectors.size() * kSectorBytes;
}

}  // namespace weir::kernels::simt
