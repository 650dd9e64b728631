// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/region_descriptor.h"

#include <sys/random.h>

#include <cstring>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/status.h"

namespace weir::kv {
namespace {

constexpr uint32_t kMagic = 0x31445257;  // "WRD1"
constexpr size_t kHostBytesMax = 45;     // the longest numeric IPv6 address
constexpr uint64_t kRegionBytesMax = uint64_t{1} << 46;

// The fixed part; `host_bytes` of text follow.
#pragma pack(push, 1)
struct Fixed {
  uint32_t magic;
  uint8_t kind;
  uint8_t host_bytes;
  uint16_t port;
  uint32_t region;
  uint32_t pid;
  uint32_t fd;
  uint64_t bytes;
  uint8_t token[16];
  uint8_t boot[16];
};
#pragma pack(pop)

}  // namespace

std::string_view NameOf(RegionKind kind) {
  switch (kind) {
    case RegionKind::kMem:
      return "mem";
    case RegionKind::kShm:
      return "shm";
    case RegionKind::kUcx:
      return "ucx";
  }
  return "unknown";
}

RegionToken MakeRegionToken() {
  RegionToken token;
  WEIR_CHECK(getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()));
  return token;
}

std::string Serialise(const RegionDescriptor& descriptor) {
  WEIR_CHECK(descriptor.host.size() <= kHostBytesMax);
  Fixed fixed{};
  fixed.magic = kMagic;
  fixed.kind = static_cast<uint8_t>(descriptor.kind);
  fixed.host_bytes = static_cast<uint8_t>(descriptor.host.size());
  fixed.port = descriptor.port;
  fixed.region = descriptor.region;
  fixed.pid = descriptor.pid;
  fixed.fd = descriptor.fd;
  fixed.bytes = descriptor.bytes;
  std::memcpy(fixed.token, descriptor.token.data(), sizeof(fixed.token));
  std::memcpy(fixed.boot, descriptor.boot.data(), sizeof(fixed.boot));
  std::string out(reinterpret_cast<const char*>(&fixed), sizeof(fixed));
  out += descriptor.host;
  return out;
}

absl::StatusOr<RegionDescriptor> ParseRegionDescriptor(std::string_view bytes) {
  if (bytes.size() < sizeof(Fixed)) {
    return Error(Reason::kBadField, "a region descriptor is too short", "regions");
  }
  const auto fixed = LoadAs<Fixed>(bytes.data());
  if (fixed.magic != kMagic) {
    return Error(Reason::kBadField, "a region descriptor is of another version", "regions");
  }
  if (fixed.kind < 1 || fixed.kind > 3) {
    return Error(Reason::kBadField, "a region descriptor has an unknown kind", "regions.kind");
  }
  if (fixed.bytes == 0 || fixed.bytes > kRegionBytesMax) {
    return Error(Reason::kBadField, "a region's size is out of range", "regions.bytes");
  }
  if (fixed.host_bytes > kHostBytesMax || bytes.size() != sizeof(Fixed) + fixed.host_bytes) {
    return Error(Reason::kBadField, "a region's host has a wrong length", "regions.host");
  }
  RegionDescriptor out;
  out.kind = static_cast<RegionKind>(fixed.kind);
  out.region = fixed.region;
  out.bytes = fixed.bytes;
  std::memcpy(out.token.data(), fixed.token, sizeof(fixed.token));
  std::memcpy(out.boot.data(), fixed.boot, sizeof(fixed.boot));
  out.pid = fixed.pid;
  out.fd = fixed.fd;
  out.host = bytes.substr(sizeof(Fixed));
  out.port = fixed.port;
  return out;
}

}  // namespace weir::kv
