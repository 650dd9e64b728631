// SPDX-License-Identifier: Apache-2.0
//
// Geometry: tokens per block, bytes per block, blocks per record and the lengths of replays. A plain
// value, any thread; this header is the only place that knows these numbers, everybody else asks it.
// Validate names the field at fault.
#pragma once

#include <cstdint>

#include "base/stdx/ids.h"
#include "base/stdx/status.h"

namespace weir::kv {

inline constexpr uint32_t kBlockTokensDefault = 128;  // of models with a window: equals W, and even
inline constexpr uint32_t kBlockTokensPlain = 64;     // of models without: V3, V3.2
// Shorter prefixes are not reused: with a window, most of such a hit would be replayed.
inline constexpr Position kHitTokensMin = 256;
inline constexpr uint32_t kRecordBlocksMax = 32;
inline constexpr uint64_t kRecordBytesMax = 4u << 20;
// A gap behind a window state up to this long is closed by computing it again.
inline constexpr Position kCatchUpTokens = 512;

struct Geometry {
  uint32_t block_tokens = kBlockTokensDefault;
  uint64_t block_bytes = 0;    // of all parts
  uint32_t window = 0;         // W: rows of a sliding window; 0 without windows
  uint32_t window_layers = 0;  // layers with a window that KV in blocks depends on
  uint32_t history = 0;        // ids before a row that it looks at (n-grams)
  Position hit_tokens_min = kHitTokensMin;
  Position catch_up = kCatchUpTokens;

  absl::Status Validate() const;

  // Without windows a prefix of blocks is all there is to restore.
  bool plain() const { return window == 0; }
  // Rows to replay before a position so that every window row behind it is exact: each layer needs
  // its own W rows of inputs that are exact themselves (serving-spec 3.8).
  Position ExactReplay() const {
    return plain() ? 0 : window + (window_layers - 1) * (window - 1);
  }
  // Consecutive blocks of one record: 1 to 32, a power of two, about 4 MiB.
  uint32_t RecordBlocks() const;
  // Positions at which a pair of rows is complete (ratio 2): where a replay may begin or end.
  static Position EvenBelow(Position position) { return position & ~Position{1}; }
};

}  // namespace weir::kv
