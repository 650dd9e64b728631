// SPDX-License-Identifier: Apache-2.0
#include "engine/model/engram_hash.h"

#include "gtest/gtest.h"

namespace weir::engine {
namespace {

// The released model's factors.
TEST(EngramHash, DrawsTheFactorsOfTheReleasedModel) {
  EXPECT_EQ(EngramMultipliers(1, 4, 99092),
            (std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(EngramMultipliers(14, 4, 99092),
            (std::vector<int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

}  // namespace
}  // namespace weir::engine
