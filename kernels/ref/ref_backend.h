// SPDX-License-Identifier: Apache-2.0
//
// The reference backend on the host: memory is host memory, a stream runs each operation inside its
// call, events are done when they are recorded. In guarded mode a touch of its memory from outside
// a kernel or a stream copy faults, which proves that model code does not look at tensors; guarded
// is for tests and for one thread. KV arenas belong to the engine and are never guarded.
#pragma once

#include <memory>

#include "kernels/op/backend.h"

namespace weir::kernels::ref {

enum class Guard : uint8_t { kOff = 0, kOn = 1 };

// kVendor rounds where released code rounds; the other numerics differ only in the formats that the
// model chooses for its stores.
std::unique_ptr<Backend> NewRefBackend(Guard guard = Guard::kOff,
                                       Numerics numerics = Numerics::kNative);

}  // namespace weir::kernels::ref
