// SPDX-License-Identifier: Apache-2.0
//
// The odd factors of an Engram layer's n-gram hash (V4.1 specification, section 8). They are not in
// the checkpoint: the model was trained with the first numbers that numpy's default generator draws
// for a seed made from the layer, so the same numbers are drawn here. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::engine {

// One factor for each of the `tokens` places of the longest n-gram, the current token's first.
// `compressed_vocab` > 1 bounds what they are multiplied with.
std::vector<int64_t> EngramMultipliers(int layer, int tokens, int64_t compressed_vocab);

}  // namespace weir::engine
