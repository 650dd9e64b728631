// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/hash.h"

#include <isa-l.h>
#include <openssl/evp.h>

#include "base/stdx/check.h"

namespace weir {

Sha256Digest Sha256(std::span<const std::byte> bytes) {
  Sha256Digest digest;
  unsigned int size = 0;
  WEIR_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) ==
             1);
  WEIR_CHECK(size == digest.size());
  return digest;
}

std::string HexOf(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  // ISA-L's crc32_iscsi neither inverts its seed nor its result.
  auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
  uint32_t state = ~crc;
  size_t left = bytes.size();
  while (left > 0) {
    const int part = left > (1u << 30) ? (1 << 30) : static_cast<int>(left);
    state = crc32_iscsi(data, part, state);
    data += part;
    left -= static_cast<size_t>(part);
  }
  return ~state;
}

}  // namespace weir
