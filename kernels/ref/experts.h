// SPDX-License-Identifier: Apache-2.0
//
// Which experts a row takes, from the gate's product (kernels/op/moe.h, MoeRoute): the same code
// for every backend on the host, so that only the product is theirs. In double. Any thread; writes
// the row's part of `expert` and `weight` alone.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/op/moe.h"

namespace weir::kernels::ref {

inline constexpr int kExpertsMax = 1024;
inline constexpr int kChoicesMax = 64;

void SelectExperts(const MoeRouteArgs& args, const double* logit, int64_t row);

// The order in which MoeCombine adds a row's choices: by logical expert.
std::array<int, kChoicesMax> InExpertOrder(const int32_t* expert, int choices);

}  // namespace weir::kernels::ref
