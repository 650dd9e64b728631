// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"
// clang-format off
// The body is written on Vec.
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/rowwise_body.h"
// clang-format on

namespace weir::kernels::cpu {

void FillRowwiseAvx512(KernelTable* table) { FillRowwise(table); }

}  // namespace weir::kernels::cpu
