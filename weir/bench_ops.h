// SPDX-License-Identifier: Apache-2.0
//
// `weir bench ops`: runs the measurement of kernels/bench and prints it, for people or as one line
// of JSON. Blocks for seconds; returns the exit status, 1 where a kernel differs from the
// reference.
#pragma once

#include "kernels/bench/ops_bench.h"

namespace weir {

int BenchOps(const kernels::OpsBenchOptions& options, bool json);

}  // namespace weir
