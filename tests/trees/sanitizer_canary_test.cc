// SPDX-License-Identifier: Apache-2.0
//
// Shows that a sanitizer tree has its sanitizers on: with the fault armed (WEIR_PLANTED=17) this
// program reads freed memory and races, which only an instrumented build can notice.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "base/stdx/planted.h"

namespace weir {
namespace {

bool Armed() {
  const char* planted = std::getenv("WEIR_PLANTED");
  return planted != nullptr && std::atoi(planted) == static_cast<int>(Planted::kMemoryError);
}

TEST(SanitizerCanary, TheTreeIsInstrumentedAsItSays) {
  const std::string asked = WEIR_SANITIZE_NAMES;
#ifdef __SANITIZE_ADDRESS__
  const bool address = true;
#else
  const bool address = false;
#endif
#ifdef __SANITIZE_THREAD__
  const bool thread = true;
#else
  const bool thread = false;
#endif
  EXPECT_EQ(asked.find("address") != std::string::npos, address);
  EXPECT_EQ(asked.find("thread") != std::string::npos, thread);
}

TEST(SanitizerCanary, ErrsWhenArmed) {
  if (!Armed()) return;
  int shared = 0;
  std::thread other([&shared] { shared = 1; });
  shared = 2;
  other.join();
  auto owner = std::make_unique<int>(shared);
  int* volatile dangling = owner.get();
  owner.reset();
  EXPECT_NE(*dangling, -1);
}

}  // namespace
}  // namespace weir
