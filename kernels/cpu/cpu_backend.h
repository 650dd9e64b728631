// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend: host memory, weights packed as stored and expanded in registers, work on a pool
// of threads of its own. Streams run their commands in order beside the thread that pushes them; a
// thread that reads a host copy waits for an event first. Kernels are chosen by what the processor
// can do (see isa.h). Sums have one order, so a row's bits depend on its inputs alone, whatever the
// batch and the number of threads. Making one fails when WEIR_ISA asks for what there is not.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/op/backend.h"

namespace weir::kernels::cpu {

struct CpuOptions {
  int threads = 0;       // 0: one for each core this process may use
  std::string_view isa;  // empty: WEIR_ISA, or the best there is
};

absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(const CpuOptions& options);

}  // namespace weir::kernels::cpu
