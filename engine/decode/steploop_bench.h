// SPDX-License-Identifier: Apache-2.0
//
// What the step loop itself costs: a DecodeCore whose slots are all taken runs steps of the null
// model, plan to commit, and the figures are the processor time and allocations between the first
// and the last measured step. Runs on the calling thread; clocks and counters are handed in.
#pragma once

#include <cstdint>
#include <functional>

namespace weir::engine {

struct StepLoopBenchOptions {
  uint32_t sequences = 64;
  uint32_t rows = 6;  // of each sequence in each step
  uint32_t context_tokens = 1024;
  uint32_t warmup_steps = 100;
  uint32_t steps = 1000;
};

struct StepLoopBenchHooks {
  std::function<int64_t()> cpu_nanos;      // of this thread; required
  std::function<uint64_t()> allocations;   // since start; may be empty
};

struct StepLoopBenchFigures {
  double cpu_micros_per_step = 0;
  double allocations_per_step = 0;
  double rows_per_step = 0;    // so that a step with fewer rows than asked for shows
  double tokens_per_step = 0;
};

StepLoopBenchFigures RunStepLoopBench(const StepLoopBenchOptions& options,
                                      const StepLoopBenchHooks& hooks);

}  // namespace weir::engine
