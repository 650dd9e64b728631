// SPDX-License-Identifier: Apache-2.0
//
// What goes into a router core and what comes out. Plain data, obeyed by the router's shell and by
// the simulator. References inside an event are valid during On only. Text never appears here: the
// shell renders prompts before Submit and parses ids after Deliver.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/obs/span.h"
#include "base/runtime/time.h"
#include "base/stdx/ids.h"
#include "base/stdx/status.h"
#include "kvstore/key/namespace.h"
#include "proto/peer.pb.h"

namespace weir::router {

namespace pb = ::weir::v1;

// A client's request, already rendered to ids. The shell chose the id.
struct Submit {
  RequestId request;
  std::vector<TokenId> prompt;
  uint32_t new_tokens_max = 0;  // 0 = as many as fit
  pb::Sampling sampling;        // seed already drawn where the client gave none
  Duration deadline{0};         // from now; 0 = configured
  TraceContext trace;           // its span, when sampled; what engines do are spans below it
  kv::Domain domain;            // who shares prefixes with it
};
// The client went away, or the shell has all it wants (stop string, error while writing).
struct Withdraw {
  RequestId request;
  bool satisfied = false;  // true: a stop string ended it; counts as success
};
struct PeerUp {
  InstanceId instance;
  const pb::Hello& hello;
};
struct PeerDown {
  InstanceId instance;
};
struct Received {
  InstanceId from;
  const pb::Envelope& message;
};
struct DrainRequested {
  Instant deadline;
};
struct Tick {};

using RouterEvent =
    std::variant<Submit, Withdraw, PeerUp, PeerDown, Received, DrainRequested, Tick>;

struct RouterActions {
  struct Send {
    InstanceId to;
    pb::Envelope message;
  };
  // Ids accepted by the journal, each position once and in order. `first` counts answer tokens
  // from 0.
  struct Deliver {
    RequestId request;
    uint32_t first = 0;
    std::vector<TokenId> ids;
    std::vector<pb::TokenLogprob> logprobs;  // empty or one per id
    uint32_t cached_tokens = 0;  // as in Close, for those who tell it first
  };
  // The last word about a request; nothing follows. Not sent for withdrawn requests.
  struct Close {
    RequestId request;
    pb::FinishReason finish = pb::FINISH_REASON_UNSPECIFIED;  // STOP or LENGTH when status is OK
    absl::Status status;
    uint32_t prompt_tokens = 0;
    uint32_t answer_tokens = 0;
    uint32_t cached_tokens = 0;  // billed prefix hit
    uint32_t attempts = 0;
  };
  std::vector<Send> sends;
  std::vector<Deliver> deliveries;  // performed before closes
  std::vector<Close> closes;
  std::vector<Span> spans;  // of requests that are traced; the shell says whose they are
  bool drained = false;

  void Clear() {
    sends.clear();
    deliveries.clear();
    closes.clear();
    spans.clear();
    drained = false;
  }
};

struct RouterState {
  uint32_t requests = 0;  // alive
  uint32_t queued = 0;    // of those, waiting for an engine
  uint32_t journals = 0;
  uint64_t journal_tokens = 0;
  uint32_t prefill_instances = 0;
  uint32_t decode_instances = 0;
  uint64_t submitted = 0;
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  uint64_t refused = 0;   // never admitted
  uint64_t attempts = 0;  // started, all requests
  uint64_t tokens_taken = 0;
  uint64_t tokens_stale = 0;  // dropped by a journal
  uint64_t losses = 0;        // attempts that ended by a failure
  uint64_t preemptions = 0;
  uint64_t orphans = 0;       // messages about requests or from instances that nobody knows
  uint64_t hellos_refused = 0;
  bool draining = false;
};

}  // namespace weir::router
