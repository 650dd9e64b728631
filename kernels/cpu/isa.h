// SPDX-License-Identifier: Apache-2.0
//
// Which instructions this machine has, and which of them the kernels use. One level includes all
// below it. Read once when a backend is made; any thread. WEIR_ISA=scalar|avx2|avx512|avx512vnni
// lowers the level, so that tests can run every variant; a level that the machine lacks is an
// error.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/cpu/kernel_table.h"

namespace weir::kernels::cpu {

std::string_view IsaName(Isa isa);

// The best level of this machine, whatever WEIR_ISA says.
Isa MachineIsa();

// The level of this name. kBadField for a name that is none, or more than the machine has.
absl::StatusOr<Isa> CheckedIsa(std::string_view name);

// The level to use: WEIR_ISA, or the machine's.
absl::StatusOr<Isa> ChooseIsa();

}  // namespace weir::kernels::cpu
