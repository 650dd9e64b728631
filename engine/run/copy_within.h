// SPDX-License-Identifier: Apache-2.0
//
// Reads of pages that lie in our own arena and stay with their engine: plain copies. Runs on the
// reader's step thread; the owner keeps the pages unchanged until it is answered. What a peer named is
// not trusted: kCorrupt, with some pages copied or none, where a page does not exist.
#pragma once

#include "base/stdx/status.h"
#include "engine/cache/kv_memory.h"
#include "engine/run/engine_io.h"

namespace weir::engine {

Reason CopyWithin(const KvMemory& memory, const Fetch& fetch);

}  // namespace weir::engine
