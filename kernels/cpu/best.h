// SPDX-License-Identifier: Apache-2.0
//
// The best of many numbers in a few passes over them, without sorting. Pure; any thread.
#pragma once

#include <cstdint>

namespace weir::kernels::cpu {

// Puts the places of the `keep` largest of `count` numbers, none of them NaN, in `out`, ascending,
// and returns how many there are. Among equals the lower places are kept; 0 and -0 are equal.
int64_t KeepBest(const float* score, int64_t count, int64_t keep, int32_t* out);

}  // namespace weir::kernels::cpu
