// SPDX-License-Identifier: Apache-2.0
#include <future>
#include <memory>
#include <variant>

#include "base/runtime/descriptors.h"
#include "base/runtime/driver.h"
#include "base/runtime/gate.h"
#include "base/runtime/loop.h"
#include "base/runtime/pool.h"
#include "base/runtime/stall_digest.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(Descriptors, AreRaisedAsFarAsTheyGo) {
  const uint64_t limit = RaiseDescriptorLimit();
  EXPECT_GT(limit, 64u);
  EXPECT_EQ(RaiseDescriptorLimit(), limit);
  EXPECT_EQ(ConnectionsWithin(1024, 16384), 960u);
  EXPECT_EQ(ConnectionsWithin(1024, 100), 100u);
  EXPECT_EQ(ConnectionsWithin(10, 100), 1u);
}

// Runs `task` on the loop and waits for it.
template <class F>
auto On(Loop& loop, F task) {
  std::packaged_task<decltype(task())()> packaged(std::move(task));
  auto result = packaged.get_future();
  loop.Post("test", [&] { packaged(); });
  return result.get();
}

TEST(StallDigest, TellsOfLongOnesOnceInAWhile) {
  StallDigest digest;
  const Instant start{};
  EXPECT_FALSE(digest.Add(start, Millis(99)));
  const auto first = digest.Add(start, Millis(100));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->count, 1u);
  EXPECT_FALSE(digest.Add(start + Millis(1), Millis(300)));
  EXPECT_FALSE(digest.Add(start + Millis(9999), Millis(200)));
  const auto second = digest.Add(start + Millis(10000), Millis(150));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->count, 3u);
  EXPECT_EQ(second->max, Millis(300));
}

TEST(Loop, RunsPostedTasksInOrderOnItsThread) {
  Loop loop({.name = "t"});
  loop.Start();
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) {
    loop.Post("push", [&seen, i, own = std::make_unique<int>(i)] { seen.push_back(*own); });
  }
  EXPECT_TRUE(On(loop, [&] { return loop.InLoop(); }));
  EXPECT_FALSE(loop.InLoop());
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
  EXPECT_GE(loop.turns(), 100u);
}

TEST(Loop, TimersRunInOrderOfTimeAndCancelledOnesNever) {
  Loop loop({});
  loop.Start();
  std::promise<void> done;
  std::string seen;
  loop.Post("arm", [&] {
    loop.After("b", Millis(4), [&] {
      seen += 'b';
      done.set_value();
    });
    loop.After("a", Millis(1), [&] { seen += 'a'; });
    loop.Cancel(loop.After("x", Millis(2), [&] { seen += 'x'; }));
    loop.Cancel(0);
    loop.At("never", kNever, [&] { seen += 'n'; });
  });
  done.get_future().get();
  EXPECT_EQ(seen, "ab");
}

TEST(Loop, ReportsAStallByName) {
  std::string stalled;
  Loop loop({.name = "L", .stall_limit = Duration(0), .on_stall = [&](auto name, auto what, auto) {
               if (what == "slow one") stalled = std::string(name) + ":" + std::string(what);
             }});
  loop.Start();
  loop.Post("slow one", [] {});
  On(loop, [] {});
  EXPECT_EQ(stalled, "L:slow one");
  EXPECT_GE(loop.stalls(), 1u);
}

TEST(Loop, StopDropsWhatIsQueued) {
  auto owned = std::make_shared<int>(1);
  {
    Loop loop({});
    loop.Post("never run", [owned] {});
    EXPECT_EQ(owned.use_count(), 2);
  }
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(Pool, RunsAllAndRefusesWhenFullOrClosed) {
  std::atomic<int> ran{0};
  std::promise<void> started, release;
  auto released = release.get_future().share();
  Pool pool(1, 2);
  ASSERT_TRUE(pool.TryRun([&] {
    started.set_value();
    released.wait();
    ++ran;
  }));
  started.get_future().wait();
  EXPECT_TRUE(pool.TryRun([&] { ++ran; }));
  EXPECT_TRUE(pool.TryRun([&] { ++ran; }));
  EXPECT_FALSE(pool.TryRun([&] { ++ran; }));
  release.set_value();
  pool.Close();
  EXPECT_EQ(ran, 3);
  EXPECT_FALSE(pool.TryRun([&] { ++ran; }));
}

TEST(Gate, ClosesToNewWorkAndCallsWhenTheLastLeaves) {
  Gate gate;
  auto first = gate.Enter();
  ASSERT_TRUE(first);
  EXPECT_EQ(gate.inside(), 1u);
  int empty = 0;
  gate.Close([&] { ++empty; });
  EXPECT_FALSE(gate.Enter());
  EXPECT_FALSE(gate.WaitEmpty(Millis(0)));
  first.reset();
  EXPECT_EQ(empty, 1);
  EXPECT_TRUE(gate.WaitEmpty(Millis(0)));
  Gate idle;
  idle.Close([&] { ++empty; });
  EXPECT_EQ(empty, 2);
}

// Adds up numbers; asks for a tick `due` after each add.
struct SumCore {
  struct Add {
    int value;
  };
  struct Tick {};
  using Event = std::variant<Add, Tick>;
  using Actions = std::vector<int>;

  void On(Instant now, const Event& event, Actions* out) {
    if (const Add* add = std::get_if<Add>(&event)) {
      sum += add->value;
      deadline = now + due;
      out->push_back(sum);
    } else {
      deadline = kNever;
      out->push_back(-1);
    }
  }
  Instant NextDeadline() const { return deadline; }

  int sum = 0;
  Duration due = Millis(2);
  Instant deadline = kNever;
};
static_assert(Core<SumCore>);

Driver<SumCore>::Options DriverOptions(std::vector<int>* out, std::promise<void>* ticked) {
  return {.inbox_capacity = 4,
          .make_tick = [] { return SumCore::Event(SumCore::Tick{}); },
          .perform = [out, ticked](Instant, std::vector<int>* actions) {
            out->insert(out->end(), actions->begin(), actions->end());
            if (ticked && actions->back() == -1) ticked->set_value();
          }};
}

TEST(Driver, DeliversEventsThenTheTickAndSaysNoWhenFull) {
  SumCore core;
  std::vector<int> out;
  Driver<SumCore> driver(&core, DriverOptions(&out, nullptr));
  for (int i = 1; i <= 4; ++i) EXPECT_TRUE(driver.TryPush(SumCore::Add{i}));
  EXPECT_FALSE(driver.TryPush(SumCore::Add{5}));
  EXPECT_EQ(driver.Turn(), 4u);
  EXPECT_EQ(out, (std::vector<int>{1, 3, 6, 10}));
  while (out.back() != -1) driver.WaitTurn(Millis(100));
  EXPECT_EQ(out.size(), 5u);
  EXPECT_TRUE(driver.TryPush(SumCore::Add{5}));
  driver.Close();
  driver.RunUntilClosed();
  EXPECT_EQ(out.back(), 15);
}

TEST(LoopDriver, RunsOnTheLoopAndTicks) {
  Loop loop({});
  loop.Start();
  SumCore core;
  std::vector<int> out;
  std::promise<void> ticked;
  std::unique_ptr<LoopDriver<SumCore>> driver;
  On(loop, [&] {
    driver = std::make_unique<LoopDriver<SumCore>>(&loop, &core, DriverOptions(&out, &ticked));
  });
  EXPECT_TRUE(driver->TryPush(SumCore::Add{1}));
  EXPECT_TRUE(driver->TryPush(SumCore::Add{2}));
  ticked.get_future().get();
  On(loop, [&] { driver.reset(); });
  EXPECT_EQ(out, (std::vector<int>{1, 3, -1}));
}

}  // namespace
}  // namespace weir
