// SPDX-License-Identifier: Apache-2.0
//
// SimTransfer: page reads between simulated hosts. Bytes land when a read completes, as late as a
// real one may write them, so that whoever reuses a page too early pays for it. One thread. A read
// whose source is gone or whose bytes are damaged fails; a cancelled one completes a little later
// and may still have written until then.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "base/stdx/random.h"
#include "engine/cache/kv_memory.h"
#include "engine/run/engine_io.h"
#include "replay/sim/sim_clock.h"

namespace weir::sim {

struct TransferTimes {
  Duration base = std::chrono::microseconds(200);
  Duration per_page = std::chrono::microseconds(20);
  double jitter = 1.0;  // up to this share more
};

class SimTransfer {
 public:
  using Done = std::function<void(engine::FetchDone)>;

  SimTransfer(SimClock* clock, uint64_t seed, const TransferTimes& times)
      : clock_(*clock), random_(seed, 13), times_(times) {}

  // Memory that others may read, until Remove.
  void Add(InstanceId id, const engine::KvMemory* memory) { memories_[id] = memory; }
  void Remove(InstanceId id);

  void Post(InstanceId reader, const engine::Fetch& fetch, Done done);
  void Cancel(InstanceId reader, engine::FetchId fetch);

  // Faults. Times are multiplied until then; the next reads fail their checksum; reads fail between
  // these two until then.
  void Slow(double factor, Instant until);
  void CorruptNext(uint32_t count) { corrupt_ += count; }
  void Cut(InstanceId a, InstanceId b, Instant until);
  // Ends all faults.
  void Mend();

  uint32_t outstanding() const { return static_cast<uint32_t>(running_.size()); }

 private:
  using Key = std::pair<InstanceId, engine::FetchId>;
  struct Running {
    engine::Fetch fetch;
    Done done;
    uint64_t turn = 0;  // of its completion event; an earlier event of the same read is void
    bool cancelled = false;
    bool corrupt = false;
  };

  void Finish(const Key& key, uint64_t turn);
  bool IsCut(InstanceId a, InstanceId b) const;

  SimClock& clock_;
  Random random_;
  const TransferTimes times_;
  std::map<InstanceId, const engine::KvMemory*> memories_;
  std::map<Key, Running> running_;
  std::map<std::pair<InstanceId, InstanceId>, Instant> cuts_;
  double slow_factor_ = 1;
  Instant slow_until_{};
  uint32_t corrupt_ = 0;
  uint64_t turns_ = 0;
};

}  // namespace weir::sim
