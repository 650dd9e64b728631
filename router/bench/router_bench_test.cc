// SPDX-License-Identifier: Apache-2.0
#include "router/bench/router_bench.h"

#include <gtest/gtest.h>

namespace weir::router {
namespace {

TEST(RouterBench, EveryTokenReachesItsStream) {
  for (const uint32_t tokens_per_event : {1u, 4u}) {
    const auto result = BenchRouter(
        {.streams = 4, .events_per_stream = 50, .tokens_per_event = tokens_per_event});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->tokens, 200u * tokens_per_event);
    EXPECT_GT(result->us_per_token, 0);
    // At least the text itself.
    EXPECT_GT(result->bytes_written, result->tokens);
  }
}

}  // namespace
}  // namespace weir::router
