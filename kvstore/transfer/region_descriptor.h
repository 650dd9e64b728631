// SPDX-License-Identifier: Apache-2.0
//
// RegionDescriptor: what a peer must know to read one region of ours in one way. A value; any
// thread. The serialised form travels in the Hello message and is little-endian and fixed except for
// the host text; Parse treats its input as hostile and names the field that is wrong.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weir::kv {

enum class RegionKind : uint8_t { kMem = 1, kShm = 2, kUcx = 3 };
std::string_view NameOf(RegionKind kind);

// 128 random bits. Knowing a region's token is the right to read it, and it tells one life of a
// region from another where numbers (pid, descriptor, port) get reused.
using RegionToken = std::array<uint8_t, 16>;
RegionToken MakeRegionToken();

struct RegionDescriptor {
  RegionKind kind = RegionKind::kMem;
  uint32_t region = 0;
  uint64_t bytes = 0;
  RegionToken token{};
  // kShm: which boot of which host, and where the memory file is held open there.
  RegionToken boot{};
  uint32_t pid = 0;
  uint32_t fd = 0;
  // kUcx: the listener; the host is a numeric IPv4 or IPv6 address.
  std::string host;
  uint16_t port = 0;

  bool operator==(const RegionDescriptor&) const = default;
};

std::string Serialise(const RegionDescriptor& descriptor);
absl::StatusOr<RegionDescriptor> ParseRegionDescriptor(std::string_view bytes);

}  // namespace weir::kv
