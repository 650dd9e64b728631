// SPDX-License-Identifier: Apache-2.0
//
// DecodeSequence: one answer in the making, in its slot. Plain data of the decode core, reused from
// one sequence to the next so that its lists keep their capacity.
//
//   free ──► reserved ──► running ──► free
//   reserved, running ──► ending ──► free    (over, but a step or a read still uses its pages)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stdx/ids.h"
#include "engine/cache/kv_pool.h"
#include "engine/handover/receiver.h"
#include "engine/run/wire.h"
#include "engine/sched/step_plan.h"

namespace weir::engine {

struct DecodeSequence {
  enum class Phase : uint8_t { kFree, kReserved, kRunning, kEnding };

  AttemptKey id;
  Phase phase = Phase::kFree;
  bool in_step = false;
  bool whole = false;        // pages for the whole answer are there: never preempted
  bool tell_source = false;  // ending: the prefill engine waits for our answer
  Reason end_reason = Reason::kOk;
  uint64_t order = 0;  // of admission; the youngest gives way
  Duration lease{};
  TraceContext trace;  // sampled: spans are made of it
  Instant asked{};     // for the slot
  Instant offered{};   // by a prefill engine for the first time; Instant{}: not yet
  Instant started{};   // its first token was there; Instant{}: not yet

  Position token_count = 0;  // computed by the prefill engine
  Position cached_tokens = 0;  // of those, as the client is told
  // What the prefill engine said of offering the answer back; empty where it would not have it.
  std::string keep_parent;
  std::vector<TokenId> keep_tail;
  bool approximate = false;
  bool keeping = false;  // ending: offered back, and may be read
  Position cursor = 0;       // position of `last`, the next one to compute
  Position capacity = 0;     // tokens the pages hold
  uint32_t left = 0;         // tokens still to emit
  uint32_t emitted_here = 0;
  TokenId last = 0;  // emitted, not computed yet
  TokenScore first_score;  // of the token that came with the hand-over
  std::vector<TokenId> drafts;
  std::vector<TokenId> emitted;  // of all attempts
  SamplingParams sampling;
  BlockTable table;
  Receiver receiver;
};

}  // namespace weir::engine
