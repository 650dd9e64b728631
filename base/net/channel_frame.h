// SPDX-License-Identifier: Apache-2.0
//
// What travels on a link: a frame is a sequence of entries, each a kind (u8), a length (u32,
// little-endian) and so many bytes. Small messages share a frame. Pure functions, any thread;
// parsing trusts nothing and fails on any length that does not add up.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weir {

enum class FrameKind : uint8_t { kHello = 1, kMessage = 2, kHeartbeat = 3 };

inline constexpr std::string_view kFrameHello = "weir/1";  // bytes of the first entry each way
inline constexpr size_t kFrameHeadBytes = 5;

struct Frame {
  FrameKind kind;
  std::string bytes;
};

void AppendFrameHead(FrameKind kind, size_t length, std::string* out);

// Parses one frame that came in `pieces`. Entries of unknown kind are skipped, so that a newer peer
// may send some. False when an entry is cut off, too long, or a hello of another version.
bool ParseFrames(std::span<const std::string_view> pieces, size_t bytes_max,
                 std::vector<Frame>* out);

}  // namespace weir
