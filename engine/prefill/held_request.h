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
#include "engine/cache/prefix_cache.h"
#include "engine/handover/sender.h"
#include "engine/run/engine_io.h"
#include "engine/run/wire.h"
#include "engine/sched/step_plan.h"
#include "kvstore/key/block_key.h"

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

  // Reuse. Keys of the complete blocks of `tokens`; empty where nothing is shared.
  std::vector<kv::BlockKey> keys;
  bool seals = false;  // complete blocks become shared as they are computed
  bool stays = false;  // shares blocks, so its pages never change owner
  bool ran = false;    // rows were computed, so what it found is settled
  bool has_state = false;
  PrefixCache::StateId state = 0;  // with has_state: copied at the next step
  Position visible_from = 0;       // window rows before it do not exist
  Grade grade = Grade::kExact;     // of the blocks it computes
  Position billed = 0;             // cached tokens, as the client is told

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
