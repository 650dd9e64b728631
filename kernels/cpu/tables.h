// SPDX-License-Identifier: Apache-2.0
//
// How the tables of kernel_table.h are put together: each file of inner loops fills its part of its
// instruction set's table. Called once per set, when it is first asked for.
#pragma once

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace weir::kernels::cpu {

// The set for this level; the machine must have it. Thread-safe.
const KernelTable& KernelsFor(Isa isa);

void FillMultiplyScalar(KernelTable* table);
void FillMultiplyAvx2(KernelTable* table);
void FillMultiplyAvx512(KernelTable* table);
void FillMultiplyAvx512Vnni(KernelTable* table);

void FillRowwiseScalar(KernelTable* table);
void FillRowwiseAvx2(KernelTable* table);
void FillRowwiseAvx512(KernelTable* table);

void FillStoreScalar(KernelTable* table);
void FillStoreAvx2(KernelTable* table);
void FillStoreAvx512(KernelTable* table);

void FillCeilingScalar(KernelTable* table);
void FillCeilingAvx2(KernelTable* table);
void FillCeilingAvx512(KernelTable* table);

void FillAttendScalar(KernelTable* table);
void FillAttendAvx2(KernelTable* table);
void FillAttendAvx512(KernelTable* table);

}  // namespace weir::kernels::cpu
