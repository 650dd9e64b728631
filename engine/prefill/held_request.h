// SPDX-License-Identifier: Apache-2.0
//
// HeldRequest: one request as a prefill engine holds it, from its arrival until its pages are free.
// Plain data of the prefill core.
//
//   queued ──► computing ──► computed ──► retained     (back to queued by a newer attempt)
//      any ──► closing: over, but a decode engine may still read the pages
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/stdx/ids.h"
#include "engine/cache/kv_pool.h"
#include "engine/handover/sender.h"
#include "engine/run/engine_io.h"
#include "engine/run/wire.h"
#include "engine/sched/step_plan.h"

namespace weir::engine {

struct HeldRequest {
  enum class Phase : uint8_t { kQueued, kComputing, kComputed, kRetained, kClosing };
  // What to do once the step that reads these pages has ended.
  enum class AfterStep : uint8_t { kNothing, kRetain, kDrop };

  AttemptKey id;
  Phase phase = Phase::kQueued;
  AfterStep after_step = AfterStep::kNothing;
  bool in_step = false;
  SlotId slot{-1};
  uint64_t arrival = 0;
  Duration lease{};
  TraceContext trace;  // sampled until its span is made
  Instant arrived{};
  Instant seated{};

  std::vector<TokenId> tokens;
  Position computed = 0;  // KV and state page are right for tokens [0, computed)
  Position prompt_tokens = 0;
  Position tail_start = 0;
  uint32_t rows_computed = 0;  // by this attempt
  SamplingParams sampling;
  BlockTable table;

  bool has_first = false;  // the token after `tokens` was sampled
  TokenId first = 0;
  TokenScore first_score;
  std::vector<TokenId> drafts;

  Sender sender;
  // What came while the pages could not change hands: applied when they can.
  std::unique_ptr<pb::Prefill> next;
  std::unique_ptr<pb::Attach> next_attach;

  bool listed = false;                      // in the queue or, by phase, the retained list
  std::list<HeldRequest*>::iterator place;  // there

  Position remaining() const { return static_cast<Position>(tokens.size()) - computed; }
  bool computed_all() const { return has_first && remaining() == 0; }
};

}  // namespace weir::engine
