// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "engine/sched/decode_scheduler.h"
#include "engine/sched/prefill_scheduler.h"
#include "gtest/gtest.h"

namespace weir::engine {
namespace {

struct Job {
  Position remaining;
  uint64_t arrival;
  int finished_at = -1;
};

// Steps until all jobs are done; returns how many.
int RunAll(PrefillScheduler* scheduler, std::vector<Job>* jobs, uint32_t chunk) {
  int step = 0;
  while (true) {
    std::vector<PrefillCandidate> candidates;
    for (size_t i = 0; i < jobs->size(); ++i) {
      if ((*jobs)[i].remaining == 0) continue;
      candidates.push_back({.slot = SlotId(static_cast<int32_t>(i)),
                            .remaining = (*jobs)[i].remaining,
                            .arrival = (*jobs)[i].arrival});
    }
    if (candidates.empty()) return step;
    scheduler->Assign(candidates);
    ++step;
    uint32_t rows = 0;
    for (const PrefillCandidate& c : candidates) {
      Job& job = (*jobs)[static_cast<size_t>(c.slot.value)];
      EXPECT_LE(c.rows, job.remaining);
      job.remaining -= c.rows;
      rows += c.rows;
      if (job.remaining == 0 && job.finished_at < 0) job.finished_at = step;
    }
    EXPECT_LE(rows, chunk);
    EXPECT_GT(rows, 0u);
  }
}

TEST(PrefillScheduler, ShortPromptsPassAHugeOneWithoutSlowingItMuch) {
  PrefillScheduler scheduler(8192);
  std::vector<Job> jobs{{.remaining = 600000, .arrival = 1}};
  for (uint64_t i = 0; i < 20; ++i) jobs.push_back({.remaining = 101, .arrival = 2 + i});
  RunAll(&scheduler, &jobs, 8192);
  for (size_t i = 1; i < jobs.size(); ++i) EXPECT_LE(jobs[i].finished_at, 3);
  EXPECT_LE(jobs[0].finished_at, 74 * 12 / 10);
}

TEST(PrefillScheduler, TheOldestKeepsFourFifthsUnderASteadyFlow) {
  constexpr uint32_t kChunk = 500;
  PrefillScheduler scheduler(kChunk);
  Position huge = 500 * 1000;
  int steps = 0;
  uint64_t arrival = 1;
  while (huge > 0) {
    // Short ones without end, each as large as a chunk.
    PrefillCandidate candidates[] = {{.slot = SlotId(0), .remaining = huge, .arrival = 0},
                                     {.slot = SlotId(1), .remaining = 500, .arrival = ++arrival}};
    scheduler.Assign(candidates);
    for (const PrefillCandidate& c : candidates) {
      if (c.slot == SlotId(0)) huge -= c.rows;
    }
    ++steps;
  }
  EXPECT_LE(steps, 1000 * 13 / 10);
}

TEST(PrefillScheduler, EveryRowIsUsedWhenThereIsWork) {
  PrefillScheduler scheduler(100);
  std::vector<Job> jobs{{.remaining = 150, .arrival = 3}, {.remaining = 150, .arrival = 1},
                        {.remaining = 1, .arrival = 2}};
  EXPECT_EQ(RunAll(&scheduler, &jobs, 100), 4);
  PrefillScheduler one(1);
  std::vector<Job> small{{.remaining = 3, .arrival = 1}, {.remaining = 3, .arrival = 2}};
  EXPECT_EQ(RunAll(&one, &small, 1), 6);
}

TEST(DecodeScheduler, SharesDraftsAndRotatesThoseLeftOut) {
  DecodeScheduler scheduler(8, 4);
  std::vector<DecodeScheduler::Turn> turns;
  for (int i = 0; i < 3; ++i) {
    scheduler.Add(SlotId(i));
    scheduler.Want(SlotId(i), 3);
  }
  scheduler.Assign(&turns);
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0].rows, 2);
  EXPECT_EQ(turns[1].rows, 1);
  for (int i = 3; i < 6; ++i) scheduler.Add(SlotId(i));
  std::map<int, int> served;
  for (int step = 0; step < 6; ++step) {
    scheduler.Assign(&turns);
    ASSERT_EQ(turns.size(), 4u);
    for (const auto& turn : turns) ++served[turn.slot.value];
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(served[i], 4) << i;
}

TEST(DecodeScheduler, RemovesAnywhereAndSkipsTheUnwanted) {
  DecodeScheduler scheduler(4, 4);
  std::vector<DecodeScheduler::Turn> turns;
  for (int i = 0; i < 4; ++i) scheduler.Add(SlotId(i));
  scheduler.Remove(SlotId(0));
  scheduler.Remove(SlotId(3));
  scheduler.Remove(SlotId(2));
  scheduler.Add(SlotId(0));
  scheduler.Want(SlotId(1), 0);
  scheduler.Assign(&turns);
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_EQ(turns[0].slot, SlotId(0));
  scheduler.Want(SlotId(0), 0);
  scheduler.Assign(&turns);
  EXPECT_TRUE(turns.empty());
  EXPECT_EQ(scheduler.size(), 2u);
}

}  // namespace
}  // namespace weir::engine
