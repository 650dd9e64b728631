// SPDX-License-Identifier: Apache-2.0
//
// Measures the CPU backend's matrix products, and V4.1's attention and selection, beside the
// ceilings of the processor, in one run: a loop that reads memory and a loop of multiply-adds. Every
// product is compared with the reference first. Times are CPU times of the computing thread, so that
// others on the machine cost little; what shares a resource is measured in turn, and a share is the
// median over turns.
// Blocks for seconds; starts threads of its own; needs some hundred MiB. Errors: no memory, a
// WEIR_ISA that the machine lacks, a product that differs from the reference (kBug).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::kernels {

struct OpsBenchOptions {
  bool quick = false;
  bool check_only = false;  // compare with the reference and measure nothing
};

struct OpsBenchLine {
  std::string name;   // "fp8_gemv"
  std::string label;  // for people
  int threads = 0;    // at once, each with its own weights
  double rate = 0;    // GB/s or GFLOP/s, all threads together
  double share = 0;   // of the ceiling; 1 for the ceilings
  bool flops = false;
};

struct OpsBenchResult {
  std::string isa;
  double worst = 0;  // largest difference from the reference, in standard deviations of the output
  std::vector<OpsBenchLine> lines;
};

absl::StatusOr<OpsBenchResult> BenchOps(const OpsBenchOptions& options);

}  // namespace weir::kernels
