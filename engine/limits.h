// SPDX-License-Identifier: Apache-2.0
//
// The bounds that protect an engine, as opposed to the settings an operator chooses (config.proto).
// Constants, any thread.
#pragma once

#include <cstdint>

#include "base/runtime/time.h"

namespace weir::engine {

inline constexpr Duration kLoadReportGap = Millis(50);      // at most one report per gap
inline constexpr Duration kLoadReportPeriod = Millis(1000);  // at least one report per period
inline constexpr Duration kLeaseDefault = Millis(30000);
inline constexpr Duration kLeaseMax = Millis(600000);  // whatever a peer asks for
inline constexpr Duration kCacheEventsGap = Millis(10);  // at most one message per gap, unless large
inline constexpr uint32_t kCacheEventsMax = 4096;        // large
inline constexpr uint32_t kCacheSnapshotMax = 1u << 18;  // keys; the router's view is a hint
inline constexpr Duration kKeepWait = Millis(1000);      // for the answer to what is offered back
inline constexpr size_t kKeepsMax = 64;                  // offers that one engine reads at once
inline constexpr uint32_t kWindowStatesMax = 65536;
inline constexpr uint32_t kPeersMax = 4096;          // streams an engine keeps track of
inline constexpr uint32_t kSlotsMax = 65536;
inline constexpr uint32_t kFetchReadsMax = 1024;     // pages in one Fetch
inline constexpr uint32_t kChunkBlocksMax = 2048;    // blocks in one ChunkDone
inline constexpr uint32_t kGrowthBlocks = 4;         // set aside beyond the prompt by a reservation
// Tokens of all prompts that wait for a slot: 256 MiB of ids. One prompt may exceed it alone.
inline constexpr uint64_t kQueuedTokensMax = 64u << 20;
inline constexpr uint32_t kStopTokensMax = 64;
inline constexpr uint32_t kLogitBiasMax = 2048;
inline constexpr uint32_t kTopLogprobsMax = 20;
inline constexpr uint32_t kRowGroupMax = 32768;      // rows of one group; StepRow::count has 16 bits
// Room an answer's token history starts with; longer answers grow it by doubling.
inline constexpr uint32_t kEmittedReserve = 16384;

static_assert(kFetchReadsMax <= 8192, "a transfer takes at most 8192 operations");

}  // namespace weir::engine
