// SPDX-License-Identifier: Apache-2.0
#include "kvstore/node/run_index.h"

#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "base/stdx/status.h"

namespace weir::kv {
namespace {

std::array<uint32_t, 2> Half(const IndexKey& key) {
  return {static_cast<uint32_t>(key.hi), static_cast<uint32_t>(key.hi >> 32)};
}

}  // namespace

RunIndex::RunIndex(uint32_t runs_max) : runs_max_(runs_max), buckets_(std::max(1u, runs_max)) {}

absl::StatusOr<RunId> RunIndex::Insert(const NewRun& run) {
  WEIR_CHECK(!run.fingerprints.empty() && run.fingerprints.size() <= kRecordBlocksMax);
  WEIR_CHECK(run.parent_run == 0 || Holds(run.parent_run));
  RunId id = 0;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (used_ < runs_max_) {
    id = ++used_;
    if ((id - 1) / kChunkEntries == chunks_.size()) {
      chunks_.push_back(std::make_unique<Entry[]>(kChunkEntries));
    }
  } else {
    return Error(Reason::kNoCapacity, "the run index is full");
  }
  Entry& entry = at(id);
  entry = {};
  entry.parent = Half(run.parent);
  entry.last = static_cast<uint32_t>(run.last.lo);
  entry.count = static_cast<uint8_t>(run.fingerprints.size());
  entry.flags = run.approx ? kApprox : 0;
  entry.domain = run.domain;
  entry.fingerprints = TakePrints(run.fingerprints);
  uint32_t& bucket = BucketOf(entry.parent);
  entry.next_in_bucket = bucket;
  bucket = id;
  Link(id, run.parent_run);
  ++size_;
  return id;
}

uint32_t RunIndex::TakePrints(std::span<const uint16_t> fingerprints) {
  const auto count = static_cast<uint32_t>(fingerprints.size());
  uint32_t place = 0;
  if (!free_prints_[count].empty()) {
    place = free_prints_[count].back();
    free_prints_[count].pop_back();
  } else {
    // Those of one run lie side by side; what is left of a chunk goes to shorter runs.
    const uint32_t left = kPoolChunk - pool_used_ % kPoolChunk;
    if (pool_used_ % kPoolChunk != 0 && left < count) {
      free_prints_[left].push_back(pool_used_);
      pool_used_ += left;
    }
    if (pool_used_ / kPoolChunk == pool_.size())
      pool_.push_back(std::make_unique<uint16_t[]>(kPoolChunk));
    place = pool_used_;
    pool_used_ += count;
  }
  std::copy(fingerprints.begin(), fingerprints.end(),
            pool_[place / kPoolChunk].get() + place % kPoolChunk);
  return place;
}

void RunIndex::Link(RunId run, RunId parent) {
  Entry& entry = at(run);
  entry.parent_run = parent;
  if (parent == 0) return;
  entry.next_sibling = at(parent).first_child;
  if (entry.next_sibling != 0) at(entry.next_sibling).previous_sibling = run;
  at(parent).first_child = run;
}

void RunIndex::Unlink(RunId run) {
  Entry& entry = at(run);
  if (entry.parent_run == 0) return;
  if (entry.previous_sibling != 0)
    at(entry.previous_sibling).next_sibling = entry.next_sibling;
  else
    at(entry.parent_run).first_child = entry.next_sibling;
  if (entry.next_sibling != 0) at(entry.next_sibling).previous_sibling = entry.previous_sibling;
  entry.parent_run = entry.next_sibling = entry.previous_sibling = 0;
}

void RunIndex::Free(RunId run) {
  Entry& entry = at(run);
  uint32_t* link = &BucketOf(entry.parent);
  while (*link != run) link = &at(*link).next_in_bucket;
  *link = entry.next_in_bucket;
  free_prints_[entry.count].push_back(entry.fingerprints);
  entry.count = 0;
  free_.push_back(run);
  --size_;
}

void RunIndex::Remove(RunId run, std::vector<RunId>* gone) {
  WEIR_CHECK(Holds(run));
  Unlink(run);
  const size_t begin = gone->size();
  gone->push_back(run);
  at(run).flags |= kGoing;
  for (size_t i = begin; i < gone->size(); ++i) {  // breadth first, as *gone grows
    for (RunId child = at((*gone)[i]).first_child; child != 0; child = at(child).next_sibling) {
      // Links that were found by half a key could be made to run in a circle.
      if ((at(child).flags & kGoing) != 0) continue;
      at(child).flags |= kGoing;
      gone->push_back(child);
    }
  }
  for (size_t i = begin; i < gone->size(); ++i) Free((*gone)[i]);
}

void RunIndex::RunsOf(uint16_t domain, std::vector<RunId>* out) const {
  for (RunId run = 1; run <= used_; ++run) {
    if (Holds(run) && at(run).domain == domain) out->push_back(run);
  }
}

uint32_t RunIndex::CountEqual(const Entry& entry, std::span<const BlockKey> keys) const {
  const uint16_t* prints = Prints(entry);
  const auto most = static_cast<uint32_t>(std::min<size_t>(entry.count, keys.size()));
  uint32_t count = 0;
  while (count < most && prints[count] == keys[count].fingerprint()) ++count;
  if (count == entry.count && entry.last != static_cast<uint32_t>(keys[count - 1].index().lo))
    --count;
  return count;
}

// A stretch may begin at any block that is covered already, since runs fork inside of others; so
// each key up to the end of the covered part is looked up once.
uint32_t RunIndex::Match(const BlockKey& root, std::span<const BlockKey> keys, Want want,
                         std::vector<Hit>* out) {
  out->clear();
  const auto size = static_cast<uint32_t>(keys.size());
  uint32_t covered = 0;
  uint32_t next = 0;  // the first position that is not looked up
  Hit best;           // `at` is where its run begins
  while (covered < size) {
    for (; next <= covered; ++next) {
      const std::array<uint32_t, 2> parent = Half((next == 0 ? root : keys[next - 1]).index());
      for (RunId id = BucketOf(parent); id != 0; id = at(id).next_in_bucket) {
        Entry& entry = at(id);
        if (entry.parent != parent || (entry.flags & (kHost | kDisk)) == 0) continue;
        if (want == Want::kExact && (entry.flags & kApprox) != 0) continue;
        const uint32_t count = CountEqual(entry, keys.subspan(next));
        if (next + count > best.at + best.count) best = {id, 0, count, next};
      }
    }
    const uint32_t end = best.at + best.count;
    if (end <= covered) break;
    // Runs found again after a restart do not know what they hang on.
    if (best.at > 0 && at(best.run).parent_run == 0) {
      auto holder = out->rbegin();  // of the block before it
      while (holder->at >= best.at) ++holder;
      if (holder->run != best.run) Link(best.run, holder->run);
    }
    out->push_back({best.run, covered - best.at, end - covered, covered});
    covered = end;
  }
  return covered;
}

uint64_t RunIndex::MemoryBytes() const {
  uint64_t bytes = chunks_.size() * kChunkEntries * sizeof(Entry) + buckets_.capacity() * 4 +
                   pool_.size() * kPoolChunk * 2 + free_.capacity() * 4;
  for (const auto& list : free_prints_) bytes += list.capacity() * 4;
  return IsPlanted(Planted::kFatIndex) ? 2 * bytes : bytes;
}

}  // namespace weir::kv
