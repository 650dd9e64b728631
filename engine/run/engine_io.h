// SPDX-License-Identifier: Apache-2.0
//
// What goes into an engine core and what comes out: the events and actions that prefill, decode and
// later vision share. Plain data. References inside an event are valid during On only; spans inside
// actions are valid until the next On. The shell and the simulator both obey this header; neither
// adds a decision of its own.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/obs/span.h"
#include "base/runtime/time.h"
#include "base/stdx/ids.h"
#include "base/stdx/status.h"
#include "engine/sched/step_plan.h"
#include "proto/peer.pb.h"

namespace weir::engine {

namespace pb = ::weir::v1;

// A stream to this instance is up and its Hello was accepted.
struct PeerUp {
  InstanceId instance;
  Role role = Role::kUnspecified;
  uint64_t arena = 0;  // pages may change owner without a copy when equal to ours and not 0
};
// The stream is gone, or the dial asked for failed for good.
struct PeerDown {
  InstanceId instance;
};
struct Received {
  InstanceId from;
  const pb::Envelope& message;
};
struct StepDone {
  const StepResult& result;
};

using FetchId = Strong<struct FetchIdTag, uint64_t>;
struct FetchDone {
  FetchId fetch;
  Reason reason = Reason::kOk;  // kCorrupt, kPeerLost, kCancelled ...
};
// Finish what runs, take nothing new. Streams still running at the deadline are given up.
struct DrainRequested {
  Instant deadline;
};
struct Tick {};

using EngineEvent =
    std::variant<PeerUp, PeerDown, Received, StepDone, FetchDone, DrainRequested, Tick>;

// One page to read from a peer into our own memory.
struct PageRead {
  enum class Kind : uint8_t { kPage, kState };
  Kind kind = Kind::kPage;
  Part part = Part::kDecoder;
  PageId from = kNoPage;
  PageId to = kNoPage;
  uint32_t crc = 0;  // 0 = unchecked
};

struct Fetch {
  FetchId id;
  InstanceId from;
  std::vector<PageRead> reads;
};

// Tokens that leave the engine at commit, for one request. Offsets are into EngineActions.
struct TokenOut {
  RequestKey key;
  Attempt attempt;
  Position position = 0;  // of the first id
  Position cached_tokens = 0;  // with an attempt's first id
  uint32_t id_offset = 0;
  uint16_t id_count = 0;
  int32_t score_offset = -1;  // into EngineActions::scores, id_count entries
  pb::FinishReason finish = pb::FINISH_REASON_UNSPECIFIED;
  Reason reason = Reason::kOk;  // with FINISH_REASON_FAILED
};

// Appended to by On; the shell performs and clears. Order inside a vector is order of effect;
// between vectors: dials, sends, fetches, cancels, tokens, launch.
struct EngineActions {
  struct Dial {
    InstanceId instance;
    std::string address;
  };
  struct Send {
    InstanceId to;
    pb::Envelope message;  // the shell adds checksums of the pages that it offers
  };
  std::vector<Dial> dials;
  std::vector<Send> sends;
  std::vector<Fetch> fetches;
  std::vector<FetchId> cancels;  // FetchDone still arrives, when nothing can be written any more
  std::vector<TokenOut> tokens;  // the shell makes one Tokens message per router
  std::vector<TokenId> ids;
  std::vector<TokenScore> scores;
  std::vector<Span> spans;  // of requests that are traced; the shell says whose they are
  const StepPlan* launch = nullptr;  // run this; StepDone follows. At most one is outstanding
  bool drained = false;              // after DrainRequested: nothing is left
  bool poisoned = false;             // leave with exit code 70

  void Clear() {
    dials.clear();
    sends.clear();
    fetches.clear();
    cancels.clear();
    tokens.clear();
    ids.clear();
    scores.clear();
    spans.clear();
    launch = nullptr;
    drained = false;
    poisoned = false;
  }
};

// Gauges for /debug/state, /metrics and the simulator's invariants.
struct EngineState {
  uint32_t slots_total = 0;
  uint32_t slots_used = 0;
  uint32_t pages_total[kPartCount] = {0, 0};
  uint32_t pages_used[kPartCount] = {0, 0};  // retained pages and shared blocks that nobody holds excluded
  uint32_t pages_retained[kPartCount] = {0, 0};
  uint32_t state_pages_used = 0;
  uint32_t leases = 0;
  uint32_t queued = 0;
  uint32_t fetches = 0;  // reads under way
  uint64_t steps = 0;
  uint64_t rows_computed = 0;
  uint64_t tokens_emitted = 0;
  uint64_t cancelled = 0;
  uint64_t preempted = 0;
  uint32_t blocks_shared = 0;  // of the prefix cache, in use or not
  uint32_t window_states = 0;
  uint64_t tokens_hit = 0;     // of prompts, that needed no computing
  uint64_t orphans = 0;  // messages about requests nobody knows
  bool step_running = false;
  bool draining = false;
};

}  // namespace weir::engine
