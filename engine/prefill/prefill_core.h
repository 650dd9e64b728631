// SPDX-License-Identifier: Apache-2.0
//
// PrefillCore: decides everything a prefill engine does. Requests wait in a bounded queue, get a slot
// and pages, are computed in chunks that several of them share, and are handed over to a decode
// engine block by block; afterwards their pages stay as long as nobody needs the room, so that a new
// attempt computes only what is missing. Complete blocks are shared by key with every request of the
// same isolation domain that begins alike, and window states are saved to go on from. Owned by the engine's step thread; nothing blocks, nothing
// reads a clock. Pages that a decode engine may still read are freed only after that engine answered
// or is gone. What goes wrong with a request becomes PrefillFailed; an unknown id is counted and
// dropped.
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
#include "kvstore/hit/hit_plan.h"

namespace weir::engine {

class PrefillCore {
 public:
  using Event = EngineEvent;
  using Actions = EngineActions;

  struct Config {
    ModelInfo model;
    KvShare kv;
    uint64_t arena = 0;  // of the Hello; peers with the same one take pages over without a copy
    uint32_t slots = 64;
    uint32_t chunk_rows = 512;  // rows of one step, over all requests
    uint32_t queue_max = 1024;
    uint64_t queue_tokens_max = kQueuedTokensMax;  // of all waiting prompts together
    uint32_t retain_max = 64;
    bool prefix_cache = true;
    kv::ReplayMode replay = kv::ReplayMode::kExact;
    uint32_t window_states = 64;  // kept to go on from exactly
    Position hit_tokens_min = kv::kHitTokensMin;
    Duration lease = kLeaseDefault;  // for requests that name none
  };

  explicit PrefillCore(Config config);
  ~PrefillCore();
  PrefillCore(const PrefillCore&) = delete;
  PrefillCore& operator=(const PrefillCore&) = delete;

  void On(Instant now, const Event& event, Actions* out);
  Instant NextDeadline() const;

  // O(1) to O(requests); for gauges and invariants.
  EngineState state() const;
  // Empty when the accounts are right, else one sentence. Counts only, cheap.
  std::string CheckInvariants() const;
  // As above, page by page.
  std::string CheckPages() const;

  // For /debug/state and the simulator.
  struct RequestInfo {
    RequestKey key;
    Attempt attempt;
    const char* phase = "";  // queued, computing, waiting, handover, retained, closing
    Position tokens = 0;
    Position computed = 0;
    uint32_t blocks = 0;
    InstanceId sink;
  };
  std::vector<RequestInfo> Requests() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir::engine
