// SPDX-License-Identifier: Apache-2.0
//
// The messages between UcxReader and UcxServer: headers of UCX active messages, little-endian and
// packed. Values only. Receivers check every length before they load one.
#pragma once

#include <cstdint>

namespace weir::kv {

// Active message ids. A change of any layout below takes new ids, so that two versions do not
// understand each other instead of misunderstanding.
enum class UcxMessage : unsigned { kPing = 16, kPong = 17, kRead = 18, kData = 19 };

#pragma pack(push, 1)
// Reader to owner, and echoed unchanged.
struct UcxPing {
  uint64_t link;  // the reader's own number
};

// Reader to owner.
struct UcxReadRequest {
  uint64_t piece;  // the reader's own number, echoed in the answer
  uint64_t offset;
  uint32_t region;
  uint32_t bytes;
  uint8_t token[16];
};

// Owner to reader, with the bytes as payload where reason is 0.
struct UcxData {
  uint64_t piece;
  uint16_t reason;  // a weir::Reason
};
#pragma pack(pop)

}  // namespace weir::kv
