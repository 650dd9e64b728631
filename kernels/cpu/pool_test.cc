// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace weir::kernels::cpu {
namespace {

using Grant = Arbiter::Grant;

TEST(Arbiter, AStepGoesFirstAndLeavesOneSlice) {
  constexpr uint64_t kMillisecond = 1'000'000;
  Arbiter arbiter;
  EXPECT_EQ(arbiter.Next(false, false), Grant::kNothing);
  EXPECT_EQ(arbiter.Next(false, true), Grant::kSlice);
  arbiter.Sliced(kMillisecond);
  EXPECT_TRUE(arbiter.SliceEnds());  // nothing is owed to it
  // A step runs to its end, whatever waits.
  EXPECT_EQ(arbiter.Next(true, true), Grant::kStep);
  EXPECT_EQ(arbiter.Next(true, true), Grant::kStep);
  // Then what waited has one slice, and the next step its turn.
  EXPECT_EQ(arbiter.Next(false, true), Grant::kSlice);
  std::string order;
  for (int i = 0; i < 60; ++i) {
    const bool step = arbiter.Next(true, true) == Grant::kStep;
    order += step ? 'D' : 'p';
    if (step) {
      arbiter.Next(false, true);  // a step of one command
    } else {
      arbiter.Sliced(6 * kMillisecond);
    }
  }
  EXPECT_EQ(order.substr(0, 15), "ppppDppppDppppD");
  // Nothing waited during this step: the next one owes nothing.
  arbiter.Next(true, false);
  arbiter.Next(false, false);
  EXPECT_EQ(arbiter.Next(true, true), Grant::kStep);
}

// A machine whose clock moves by what the parts cost.
std::atomic<uint64_t> g_now{0};
uint64_t FakeNow() { return g_now.load(); }

struct Scene {
  std::string order;  // 'p' a part of the prefill, 'D' a decode command
  CommandQueue* decode = nullptr;
  int pushes_at = 0;  // the part that brings a step of two commands
  int steps_left = 0;
};

void PushStep(Scene* scene) {
  for (int i = 0; i < 2; ++i) {
    scene->decode->Push(
        [](Team& team, const void* arguments) {
          Scene* scene = *static_cast<Scene* const*>(arguments);
          team.For(3, 1, [](const Team::Part&, int64_t) { g_now += 1'000'000; });
          scene->order += 'D';
        },
        scene);
  }
}

// One long command of parts that cost 5 ms each. The step that comes during part 3 does not wait for
// its end; the next one, which follows at once, waits for one slice.
TEST(ComputePool, AStepInterruptsALongCommand) {
  g_now = 0;
  ComputePool pool(1, FakeNow);
  CommandQueue prefill(&pool);
  CommandQueue decode(&pool);
  decode.SetUrgent(true);
  Scene scene;
  scene.decode = &decode;
  prefill.Push(
      [](Team& team, const void* arguments) {
        Scene* scene = *static_cast<Scene* const*>(arguments);
        // What a command keeps from part to part is its own.
        team.shared()[0] = std::byte{42};
        team.For(12, 1, [scene](const Team::Part&, int64_t part) {
          g_now += 5'000'000;
          scene->order += 'p';
          if (part == 3 || part == 4) PushStep(scene);
        });
        EXPECT_EQ(team.shared()[0], std::byte{42});
      },
      &scene);
  prefill.Wait(prefill.pushed());
  decode.Wait(decode.pushed());
  EXPECT_EQ(scene.order, "ppppDDppppDDpppp");
}

// Several streams at once, more commands than a queue holds, jobs of every size: each index of each
// job is run exactly once, and commands of a stream in order.
TEST(ComputePool, RunsEveryPartOfEveryCommandOnce) {
  ComputePool pool(3);
  struct Arguments {
    std::vector<std::atomic<int>>* hits;
    std::vector<int>* order;
    int number;
  };
  const auto drive = [&](int commands) {
    std::vector<std::atomic<int>> hits(1000);
    std::vector<int> order;
    CommandQueue queue(&pool);
    for (int i = 0; i < commands; ++i) {
      queue.Push(
          [](Team& team, const void* arguments) {
            const auto& args = *static_cast<const Arguments*>(arguments);
            args.order->push_back(args.number);
            team.For(args.number % 1000, 1 + args.number % 7,
                     [&](const Team::Part&, int64_t part) {
                       (*args.hits)[static_cast<size_t>(part)].fetch_add(1);
                     });
          },
          Arguments{&hits, &order, i});
    }
    queue.Wait(queue.pushed());
    for (int i = 0; i < commands; ++i) ASSERT_EQ(order.at(static_cast<size_t>(i)), i);
    for (int p = 0; p < 1000; ++p) {
      int want = 0;
      for (int i = 0; i < commands; ++i) want += p < i % 1000 ? 1 : 0;
      ASSERT_EQ(hits[static_cast<size_t>(p)].load(), want) << "part " << p;
    }
  };
  std::thread other([&] { drive(1500); });
  drive(2000);
  other.join();
}

// Long commands that urgent ones interrupt all the time: every part still runs once.
TEST(ComputePool, InterruptedCommandsRunEveryPartOnce) {
  // Every look at the clock costs a third of a slice.
  ComputePool pool(3, [] { return g_now.fetch_add(7'000'000); });
  CommandQueue slow(&pool);
  std::vector<std::atomic<int>> hits(400);
  std::vector<std::atomic<int>>* at = &hits;
  std::thread other([&pool] {
    CommandQueue decode(&pool);
    decode.SetUrgent(true);
    for (int i = 0; i < 300; ++i) {
      decode.Push([](Team& team, const void*) { team.For(5, 1, [](const Team::Part&, int64_t) {}); },
                  i);
      if (i % 3 == 0) decode.Wait(decode.pushed());
    }
  });
  for (int i = 0; i < 50; ++i) {
    slow.Push(
        [](Team& team, const void* arguments) {
          auto* hits = *static_cast<std::vector<std::atomic<int>>* const*>(arguments);
          team.For(400, 3, [hits](const Team::Part&, int64_t part) {
            (*hits)[static_cast<size_t>(part)].fetch_add(1);
          });
        },
        at);
  }
  slow.Wait(slow.pushed());
  other.join();
  for (const std::atomic<int>& count : hits) EXPECT_EQ(count.load(), 50);
}

}  // namespace
}  // namespace weir::kernels::cpu
