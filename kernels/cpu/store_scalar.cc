// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"
// clang-format off
// The body is written on Vec.
#include "kernels/cpu/vec_scalar.h"
#include "kernels/cpu/store_body.h"
// clang-format on

namespace weir::kernels::cpu {

void FillStoreScalar(KernelTable* table) { FillStore(table); }

}  // namespace weir::kernels::cpu
