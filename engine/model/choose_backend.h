// SPDX-License-Identifier: Apache-2.0
//
// Which backend computes a checkpoint's steps: `cpu` unless told otherwise, `ref` on request and
// for `vendor` numerics, which no other has. Called at load; may start threads. kBadField names the
// option at fault.
#pragma once

#include <memory>

#include "base/stdx/status.h"
#include "engine/model/model.h"
#include "kernels/op/backend.h"

namespace weir::engine {

absl::StatusOr<std::shared_ptr<kernels::Backend>> ChooseBackend(const LoadOptions& options);

}  // namespace weir::engine
