// SPDX-License-Identifier: Apache-2.0
//
// The carrier between processes of one host: a peer's memory file is mapped for reading and copied
// from by one io thread of the carrier. The mapping outlives the peer, so a read whose owner dies in
// the middle still lands whole; that the owner's lease has not run out is the callers' affair. Only
// shared arenas can be shown to peers. A descriptor that cannot be mapped is refused in Attach.
#pragma once

#include <memory>

#include "kvstore/transfer/carrier.h"

namespace weir::kv {

std::unique_ptr<Carrier> MakeShmCarrier();

}  // namespace weir::kv
