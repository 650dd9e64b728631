// SPDX-License-Identifier: Apache-2.0
//
// From a weight as stored to the tiles of packed.h. FP8 and FP4 stay as they are where their scales
// fit the tiles (blocks of 128 x 128 with F32 scales, of 32 inputs with E8M0 scales); anything else
// becomes F32. Used at load: first PlanMatrix, then memory, then PackTile for every tile, from any
// thread. Errors name what cannot be: a dtype without a storage, codes or scales that are NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/packed.h"
#include "kernels/op/tensor.h"

namespace weir::kernels::cpu {

// How one stored weight becomes one or two packed ones. `packed` has everything but addresses.
struct MatrixPlan {
  PackedMatrix packed;
  size_t bytes[2] = {0, 0};  // codes and scales of each, 64-byte aligned
  const uint8_t* byte_of_output = nullptr;

  int64_t tiles() const { return packed.whole.tiles + packed.second.tiles; }
};

absl::StatusOr<MatrixPlan> PlanMatrix(const HostMatrix& host, const uint8_t* byte_of_output);

// Fills tile `tile` of plan.tiles(), whose addresses are set. False if a code or scale is NaN.
bool PackTile(const HostMatrix& host, const MatrixPlan& plan, int64_t tile);

}  // namespace weir::kernels::cpu
