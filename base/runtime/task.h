// SPDX-License-Identifier: Apache-2.0
//
// Task: work to run once, somewhere else. It may own move-only values, is called at most once and
// then dropped. A Task must not throw.
#pragma once

#include "absl/functional/any_invocable.h"

namespace weir {

using Task = absl::AnyInvocable<void()>;

}  // namespace weir
