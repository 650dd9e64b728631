// SPDX-License-Identifier: Apache-2.0
//
// Digests. SHA-256 (OpenSSL) names things that must not collide on purpose; CRC32C (ISA-L) guards
// bytes on every hop. Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weir {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::span<const std::byte> bytes);
std::string HexOf(std::span<const uint8_t> bytes);

// CRC-32C (Castagnoli, iSCSI) of `bytes`, continuing from `crc` (0 to start).
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace weir
