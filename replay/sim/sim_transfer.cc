// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/sim_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/stdx/check.h"

namespace weir::sim {
namespace {

using engine::PageRead;

void Land(const PageRead& read, const engine::KvMemory& from, const engine::KvMemory& to) {
  if (read.kind == PageRead::Kind::kState) {
    WEIR_CHECK(read.from >= 0 && read.from < from.state_count);
    WEIR_CHECK(read.to >= 0 && read.to < to.state_count);
    std::memcpy(to.State(read.to), from.State(read.from), from.state_bytes);
    return;
  }
  const int part = static_cast<int>(read.part);
  WEIR_CHECK(read.from >= 0 && read.from < from.page_count[part]);
  WEIR_CHECK(read.to >= 0 && read.to < to.page_count[part]);
  std::memcpy(to.Page(read.part, read.to), from.Page(read.part, read.from), from.page_bytes[part]);
}

// What a torn or damaged read leaves behind.
void Damage(const PageRead& read, const engine::KvMemory& to) {
  const bool state = read.kind == PageRead::Kind::kState;
  std::byte* at = state ? to.State(read.to) : to.Page(read.part, read.to);
  const size_t bytes = state ? to.state_bytes : to.page_bytes[static_cast<int>(read.part)];
  for (size_t i = 0; i < bytes; i += 7) at[i] ^= std::byte{0x5a};
}

}  // namespace

void SimTransfer::Remove(InstanceId id) {
  memories_.erase(id);
  // Reads by the dead need no answer; reads from it fail soon.
  for (auto it = running_.begin(); it != running_.end();) {
    if (it->first.first == id) {
      it = running_.erase(it);
      continue;
    }
    if (it->second.fetch.from == id) {
      it->second.turn = ++turns_;
      clock_.After(Millis(2), [this, key = it->first, turn = turns_] { Finish(key, turn); });
    }
    ++it;
  }
}

void SimTransfer::Post(InstanceId reader, const engine::Fetch& fetch, Done done) {
  Duration time = times_.base + times_.per_page * static_cast<int64_t>(fetch.reads.size());
  double factor = 1 + times_.jitter * random_.Unit();
  if (clock_.now() < slow_until_) factor *= slow_factor_;
  time = Duration(static_cast<int64_t>(static_cast<double>(time.count()) * factor));
  Running running{fetch, std::move(done), ++turns_};
  if (corrupt_ > 0 && !fetch.reads.empty()) {
    --corrupt_;
    running.corrupt = true;
  }
  const Key key(reader, fetch.id);
  WEIR_CHECK(running_.emplace(key, std::move(running)).second);
  clock_.After(time, [this, key, turn = turns_] { Finish(key, turn); });
}

void SimTransfer::Cancel(InstanceId reader, engine::FetchId fetch) {
  const auto found = running_.find(Key(reader, fetch));
  if (found == running_.end()) return;
  found->second.cancelled = true;
  // Half of them end early; the others run their course, as a read on the wire does.
  if (random_.Chance(0.5)) return;
  found->second.turn = ++turns_;
  clock_.After(std::chrono::microseconds(100),
               [this, key = found->first, turn = turns_] { Finish(key, turn); });
}

bool SimTransfer::IsCut(InstanceId a, InstanceId b) const {
  const auto found = cuts_.find(a < b ? std::pair(a, b) : std::pair(b, a));
  return found != cuts_.end() && clock_.now() < found->second;
}

void SimTransfer::Finish(const Key& key, uint64_t turn) {
  const auto found = running_.find(key);
  if (found == running_.end() || found->second.turn != turn) return;
  Running running = std::move(found->second);
  running_.erase(found);
  const auto to = memories_.find(key.first);
  if (to == memories_.end()) return;
  const auto from = memories_.find(running.fetch.from);
  engine::FetchDone done{running.fetch.id, Reason::kOk};
  if (from == memories_.end() || IsCut(key.first, running.fetch.from)) {
    done.reason = Reason::kPeerLost;
    if (!running.fetch.reads.empty()) Damage(running.fetch.reads.front(), *to->second);
  } else {
    for (const PageRead& read : running.fetch.reads) Land(read, *from->second, *to->second);
    if (running.corrupt) {
      Damage(running.fetch.reads.front(), *to->second);
      done.reason = Reason::kCorrupt;
    }
  }
  if (running.cancelled && done.reason == Reason::kOk) done.reason = Reason::kCancelled;
  running.done(done);
}

void SimTransfer::Slow(double factor, Instant until) {
  slow_factor_ = factor;
  slow_until_ = until;
}

void SimTransfer::Cut(InstanceId a, InstanceId b, Instant until) {
  cuts_[a < b ? std::pair(a, b) : std::pair(b, a)] = until;
}

void SimTransfer::Mend() {
  slow_until_ = clock_.now();
  corrupt_ = 0;
  cuts_.clear();
}

}  // namespace weir::sim
