// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tables.h"

namespace weir::kernels::cpu {
namespace {

template <class... Fills>
KernelTable Make(Fills... fills) {
  KernelTable table;
  (fills(&table), ...);
  return table;
}

}  // namespace

const KernelTable& KernelsFor(Isa isa) {
  static const KernelTable kTables[kIsaCount] = {
      Make(FillMultiplyScalar, FillRowwiseScalar, FillAttendScalar, FillStoreScalar,
           FillCeilingScalar),
      Make(FillMultiplyAvx2, FillRowwiseAvx2, FillAttendAvx2, FillStoreAvx2, FillCeilingAvx2),
      Make(FillMultiplyAvx512, FillRowwiseAvx512, FillAttendAvx512, FillStoreAvx512,
           FillCeilingAvx512),
      Make(FillMultiplyAvx512Vnni, FillRowwiseAvx512, FillAttendAvx512, FillStoreAvx512,
           FillCeilingAvx512),
  };
  return kTables[static_cast<int>(isa)];
}

}  // namespace weir::kernels::cpu
