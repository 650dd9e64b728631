// SPDX-License-Identifier: Apache-2.0
//
// The record: 1 to 32 consecutive blocks of one chain as they lie in a file, a header of one page
// and then the sections. Pure functions and plain values for any thread; nothing blocks. A header
// owns what it says; payloads belong to the caller. Every byte that is read is taken for hostile:
// DecodeHeader and CheckBlock answer kCorrupt and never trust a length.
//
//   0      header, one page: magic, counts, stamp, domain, schema, parent key, sections, the whole
//   key
//          and one CRC32C per section of every block; its own CRC32C last
//   4096   section 0: one part of each block, block after block; zero up to the next page
//   ...    section 1 ...
//
// The parts of consecutive blocks lie side by side, so a hit that ends inside a record is one range
// of every section. What is inside a part (layers, rows) is the cache's affair.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stdx/hash.h"
#include "base/stdx/units.h"
#include "kvstore/key/block_key.h"
#include "kvstore/key/geometry.h"

namespace weir::kv {

inline constexpr uint32_t kRecordPage =
    4096;  // what direct I/O asks for, and the smallest torn write
inline constexpr uint32_t kRecordSectionsMax = 12;
inline constexpr uint64_t kRecordPayloadMax = 16 * kMiB;

using DomainId = std::array<uint8_t, 16>;  // an isolation domain: an account

struct SectionShape {
  uint32_t id = 0;
  uint32_t block_bytes = 0;  // of one block in this section

  bool operator==(const SectionShape&) const = default;
};

// How large a record is and what lies where in it.
struct RecordShape {
  uint32_t blocks = 0;
  uint32_t sections = 0;
  std::array<SectionShape, kRecordSectionsMax> section{};

  bool operator==(const RecordShape&) const = default;

  // Within the payload, which begins behind the header page.
  uint64_t SectionAt(uint32_t index) const;
  uint64_t BlockAt(uint32_t index, uint32_t block) const {
    return SectionAt(index) + uint64_t{block} * section[index].block_bytes;
  }
  uint64_t SectionBytes(uint32_t index) const {
    return AlignUp<uint64_t>(uint64_t{section[index].block_bytes} * blocks, kRecordPage);
  }
  uint64_t PayloadBytes() const { return SectionAt(sections); }
  uint64_t RecordBytes() const { return kRecordPage + PayloadBytes(); }
};

// kBadField unless counts and sizes are within the limits above.
absl::Status CheckShape(const RecordShape& shape);

// Which life of which store wrote a record, as its how manieth. Set by the store alone.
struct RecordStamp {
  std::array<uint8_t, 16> store{};
  uint32_t epoch = 0;
  uint64_t serial = 0;

  bool operator==(const RecordStamp&) const = default;
};

struct RecordHeader {
  RecordStamp stamp;
  DomainId domain{};
  Sha256Digest schema{};
  BlockKey parent;      // of the block before the first; the root for the first of a chain
  bool approx = false;  // computed behind a bounded replay: never served to an exact request
  RecordShape shape;
  std::array<BlockKey, kRecordBlocksMax> keys;
  std::array<std::array<uint32_t, kRecordBlocksMax>, kRecordSectionsMax> crc{};  // [section][block]

  const BlockKey& last() const { return keys[shape.blocks - 1]; }
};

// The header's shape must have passed CheckShape.
void EncodeHeader(const RecordHeader& header, std::span<std::byte, kRecordPage> page);
absl::StatusOr<RecordHeader> DecodeHeader(std::span<const std::byte> page);

// Fills in every CRC from a whole payload and zeroes what lies between sections, so that nothing
// that was in the memory before gets out. `payload` has PayloadBytes().
void SealPayload(std::span<std::byte> payload, RecordHeader* header);
// Only zeroes what lies between, for a payload whose checksums are known.
void ClearGaps(const RecordShape& shape, std::span<std::byte> payload);

// One block's part of one section against its CRC.
absl::Status CheckBlock(const RecordHeader& header, uint32_t section, uint32_t block,
                        std::span<const std::byte> bytes);

}  // namespace weir::kv
