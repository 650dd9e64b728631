// SPDX-License-Identifier: Apache-2.0
//
// Model: what runs a step. One per engine role and rank, driven by that role's step thread: Launch
// starts the plan's work, Collect takes its result; at most one step is outstanding. A model writes
// the KV of every row into pages and rings at the row's position; nothing of a step counts until the
// core commits it by moving its cursor, so a void or repeated step leaves no trace.
//
// LoadedModel: a checkpoint opened once per process; roles in one process share its weights.
// Errors: loading names the file and field at fault; a step never fails except by StepHealth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/stdx/ids.h"
#include "base/stdx/status.h"
#include "engine/cache/cache_layout.h"
#include "engine/cache/kv_memory.h"
#include "engine/sched/step_plan.h"

namespace weir::engine {

struct ModelInfo {
  std::string family;  // "deepseek_v3", "weir_hash", ...
  uint32_t vocab = 0;
  Position positions_max = 0;      // longest sequence
  uint32_t window = 0;             // W; 0 without sliding windows
  uint32_t window_layers = 0;      // with windows that blocks, or what comes behind them, depend on
  uint32_t history = 0;            // ids before a row that it looks at; a carry keeps them
  uint32_t decoder_tail_rows = 0;  // K; 0 without a causal encoder
  uint32_t draft_max = 0;          // gamma; 0 without a drafter
  CacheLayout layout;
  std::vector<TokenId> stop_tokens;  // end of text
  std::string digest;                // of configuration and weights
};

class Model {
 public:
  virtual ~Model() = default;

  // Starts the step. The plan and the slot views stay unchanged until Collect returned true.
  virtual void Launch(const StepPlan& plan) = 0;

  // True when step `id` is complete; *out then holds its result (cleared first, capacity kept).
  // With `wait` it blocks until then: the only wait in a step loop.
  virtual bool Collect(StepId id, bool wait, StepResult* out) = 0;
};

class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  virtual const ModelInfo& info() const = 0;
  // A model over these pages. `memory` must fit info().layout and outlive the model.
  virtual std::unique_ptr<Model> Instantiate(const KvMemory& memory) const = 0;
};

struct LoadOptions {
  std::string numerics = "native";  // fp32 | native | vendor
  std::string backend;              // cpu | ref; empty: cpu where it has the numerics
  bool deterministic = true;
  uint32_t block_tokens = 0;        // 0: the family's
  uint32_t threads = 0;             // 0: all cores
  uint32_t step_delay_us = 0;       // stand-in models only: how long a step pretends to take
};

}  // namespace weir::engine
