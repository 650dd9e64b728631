// SPDX-License-Identifier: Apache-2.0
//
// EpComm with one rank: rows stay where they are and are only grouped. Owned and driven by one
// model; its buffers are taken at creation from the backend, which must outlive it. Creation fails
// for lack of device memory.
#pragma once

#include <memory>

#include "base/stdx/status.h"
#include "engine/ep/ep_comm.h"

namespace weir::engine {

struct EpRefOptions {
  int rows_max = 0;
  int choices = 0;
  int experts = 0;
};

absl::StatusOr<std::unique_ptr<EpComm>> NewEpRef(kernels::Backend* backend, const ExpertMap& map,
                                                 const EpRefOptions& options);

}  // namespace weir::engine
