// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"
// clang-format off
// The body is written on Vec.
#include "kernels/cpu/vec_avx2.h"
#include "kernels/cpu/attend_body.h"
// clang-format on

namespace weir::kernels::cpu {

void FillAttendAvx2(KernelTable* table) { table->attend = AttendOneTile; }

}  // namespace weir::kernels::cpu
