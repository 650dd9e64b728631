// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/steploop_bench.h"

#include <time.h>

#include <cstdlib>
#include <new>

#include "gtest/gtest.h"

namespace {

uint64_t g_allocations = 0;

int64_t CpuNanos() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

void* operator new(size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace weir::engine {
namespace {

StepLoopBenchFigures Measure(StepLoopBenchOptions options) {
  const StepLoopBenchFigures figures = RunStepLoopBench(
      options, {.cpu_nanos = CpuNanos, .allocations = [] { return g_allocations; }});
  std::printf("%u sequences, %u context tokens: %.1f us, %.3f allocations, %.0f rows per step\n",
              options.sequences, options.context_tokens, figures.cpu_micros_per_step,
              figures.allocations_per_step, figures.rows_per_step);
  return figures;
}

TEST(StepLoopBench, AllocatesNothingAndUsesEveryRow) {
  const StepLoopBenchFigures figures = Measure({.steps = 500});
  EXPECT_EQ(figures.allocations_per_step, 0);
  EXPECT_EQ(figures.rows_per_step, 64 * 6);
  EXPECT_EQ(figures.tokens_per_step, 64 * 6);
}

TEST(StepLoopBench, PrintsTheFigures) {
  Measure({.sequences = 1024, .steps = 200});
  Measure({.context_tokens = 1 << 20, .steps = 500});
}

}  // namespace
}  // namespace weir::engine
