// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"

namespace weir::kernels::cpu {
namespace {

KernelTable Make(void (*multiply)(KernelTable*), void (*rowwise)(KernelTable*),
                 void (*attend)(KernelTable*)) {
  KernelTable table;
  multiply(&table);
  rowwise(&table);
  attend(&table);
  return table;
}

}  // namespace

const KernelTable& KernelsFor(Isa isa) {
  static const KernelTable kTables[kIsaCount] = {
      Make(FillMultiplyScalar, FillRowwiseScalar, FillAttendScalar),
      Make(FillMultiplyAvx2, FillRowwiseAvx2, FillAttendAvx2),
      Make(FillMultiplyAvx512, FillRowwiseAvx512, FillAttendAvx512),
      Make(FillMultiplyAvx512Vnni, FillRowwiseAvx512, FillAttendAvx512),
  };
  return kTables[static_cast<int>(isa)];
}

}  // namespace weir::kernels::cpu
