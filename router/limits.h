// SPDX-License-Identifier: Apache-2.0
//
// Bounds that protect the router and are no business of an operator. Constants only, related to
// each other by the assertions at the end; what an operator may choose is in proto/config.proto.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/runtime/time.h"

namespace weir::router {

// Instances of both roles that one router knows.
inline constexpr size_t kInstancesMax = 1024;
// Keys of blocks that one engine may tell of; what it has beyond them is not counted on.
inline constexpr size_t kCacheKeysMax = size_t{1} << 20;
// An engine's name, and its address, which goes into every Prefill.
inline constexpr size_t kNameBytesMax = 512;
// Of an engine's account of a failure, which clients see.
inline constexpr size_t kFailureBytesMax = 1024;
// From the link to a good Hello.
inline constexpr Duration kHelloWait = std::chrono::seconds(20);

// How long a request may wait for an instance of a role that has none: short for a request that has
// not started, since the client can go elsewhere; long for one whose client already reads.
inline constexpr Duration kWaitNew = std::chrono::seconds(2);
inline constexpr Duration kWaitRunning = std::chrono::seconds(15);

// Pause before an attempt after a refusal for lack of room; doubles from first to max.
inline constexpr Duration kBackoffFirst = Millis(10);
inline constexpr Duration kBackoffMax = Millis(1000);
// Pause before an attempt when two in a row ended before their engine said a word.
inline constexpr Duration kLossPause = Millis(200);
// Refusals in a row for lack of room before a request that has not started is given up.
inline constexpr uint32_t kRefusalsMax = 10;
// Preemptions of one request. Each later attempt asks for all its pages at once, so that more than a
// few mean that an engine does not keep its word.
inline constexpr uint32_t kPreemptionsMax = 64;

// An engine says at once whether it took, queued or refused a reservation.
inline constexpr Duration kReserveAnswer = std::chrono::seconds(10);

// Keys in one Renew message.
inline constexpr size_t kRenewKeysMax = 1024;

// The longest sequence where no engine says how long it may be.
inline constexpr uint32_t kPositionsDefault = 1u << 24;

// Bodies up to this size are parsed, rendered and tokenized on the loop; larger ones on the pool.
inline constexpr size_t kInlineBodyBytes = 64 * 1024;
// Of all bodies that wait for the pool or are on it; more are refused. A single one always fits.
inline constexpr size_t kPooledBytesMax = size_t{128} << 20;

// Texts of earlier prompts and answers with their ids; the least recently used are forgotten first.
inline constexpr size_t kPromptHistoryBytesMax = size_t{64} << 20;
// An answer to a prompt of more tokens is added to them on the pool.
inline constexpr uint64_t kInlineHistoryTokens = 16 * 1024;

// A stream silent for so long gets a comment, since proxies cut idle connections; looked for this
// often.
inline constexpr Duration kKeepAliveSilence = std::chrono::seconds(15);
inline constexpr Duration kKeepAliveEvery = std::chrono::seconds(5);

// Longest wait of a slow client without taking a byte.
inline constexpr Duration kSlowClient = std::chrono::seconds(30);

static_assert(kWaitNew < kWaitRunning);
static_assert(kBackoffFirst < kBackoffMax && kBackoffMax < kWaitNew);

}  // namespace weir::router
