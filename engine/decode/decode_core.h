// SPDX-License-Identifier: Apache-2.0
//
// DecodeCore: decides everything a decode engine does. A reservation sets a slot and pages aside (or
// waits its turn in a bounded queue), reads the offered KV into them, or takes the pages themselves
// over from a prefill engine of the same arena, and then takes part in every step until its answer
// ends. Owned by the engine's step thread; nothing blocks, nothing reads a clock, and a step in
// steady state allocates nothing. Pages are freed only after our own reads into them have ended.
// When pages run out the youngest sequence gives way. What goes wrong with a sequence becomes the
// finish of its last TokenOut; an unknown id is counted and dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/runtime/time.h"
#include "base/stdx/ids.h"
#include "engine/cache/kv_pool.h"
#include "engine/limits.h"
#include "engine/model/model.h"
#include "engine/run/engine_io.h"

namespace weir::engine {

class DecodeCore {
 public:
  using Event = EngineEvent;
  using Actions = EngineActions;

  struct Config {
    ModelInfo model;
    KvShare kv;
    uint64_t arena = 0;  // of the Hello; a peer with the same one gives pages without a copy
    uint32_t slots = 256;
    uint32_t step_rows_max = 0;  // 0: slots x (draft_max + 1)
    uint32_t queue_max = 1024;
    uint32_t growth_blocks = kGrowthBlocks;
    Duration lease = kLeaseDefault;  // for reservations that name none
  };

  explicit DecodeCore(Config config);
  ~DecodeCore();
  DecodeCore(const DecodeCore&) = delete;
  DecodeCore& operator=(const DecodeCore&) = delete;

  void On(Instant now, const Event& event, Actions* out);
  Instant NextDeadline() const;

  // O(1) to O(slots); for gauges and invariants.
  EngineState state() const;
  // Empty when the accounts are right, else one sentence. Counts only, cheap.
  std::string CheckInvariants() const;
  // As above, page by page.
  std::string CheckPages() const;

  // For /debug/state and the simulator.
  struct SequenceInfo {
    RequestKey key;
    Attempt attempt;
    SlotId slot{-1};         // -1 while queued
    const char* phase = "";  // queued, reserved, running, ending
    Position cursor = 0;     // next position to compute
    uint32_t emitted = 0;    // by this attempt
    uint32_t blocks = 0;
    uint32_t fetches = 0;
  };
  std::vector<SequenceInfo> Sequences() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir::engine
