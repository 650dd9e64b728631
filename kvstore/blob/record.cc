// SPDX-License-Identifier: Apache-2.0
#include "kvstore/blob/record.h"

#include <cstring>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "base/stdx/status.h"

namespace weir::kv {
namespace {

constexpr uint64_t kMagic = 0x3152'564b'5249'4557;  // "WEIRKVR1"
constexpr uint16_t kVersion = 1;
constexpr uint16_t kFlagApprox = 1;

// Where things stand in the header page; every array at its greatest length.
constexpr size_t kAtVersion = 8;
constexpr size_t kAtFlags = 10;
constexpr size_t kAtBlocks = 12;
constexpr size_t kAtSections = 14;
constexpr size_t kAtEpoch = 16;
constexpr size_t kAtSerial = 24;
constexpr size_t kAtStore = 32;
constexpr size_t kAtDomain = 48;
constexpr size_t kAtSchema = 64;
constexpr size_t kAtParent = 96;
constexpr size_t kAtShape = 128;
constexpr size_t kAtKeys = kAtShape + kRecordSectionsMax * 8;
constexpr size_t kAtCrcs = kAtKeys + kRecordBlocksMax * 32;
constexpr size_t kAtHeaderCrc = kRecordPage - 4;
static_assert(kAtCrcs + kRecordSectionsMax * kRecordBlocksMax * 4 <= kAtHeaderCrc);

absl::Status Damaged(const char* what) {
  return Error(Reason::kCorrupt, std::string("a stored record is damaged: ") + what);
}

}  // namespace

uint64_t RecordShape::SectionAt(uint32_t index) const {
  uint64_t at = 0;
  for (uint32_t i = 0; i < index; ++i) at += SectionBytes(i);
  return at;
}

absl::Status CheckShape(const RecordShape& shape) {
  if (shape.blocks == 0 || shape.blocks > kRecordBlocksMax) {
    return Error(Reason::kBadField, "a record holds 1 to 32 blocks", "blocks");
  }
  if (shape.sections == 0 || shape.sections > kRecordSectionsMax) {
    return Error(Reason::kBadField, "a record has 1 to 12 sections", "sections");
  }
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < shape.sections; ++i) {
    if (shape.section[i].block_bytes == 0) {
      return Error(Reason::kBadField, "a section of a record is empty", "block_bytes");
    }
    bytes += shape.SectionBytes(i);
    if (bytes > kRecordPayloadMax) {
      return Error(Reason::kBadField, "a record is larger than 16 MiB", "block_bytes");
    }
  }
  return absl::OkStatus();
}

void EncodeHeader(const RecordHeader& header, std::span<std::byte, kRecordPage> page) {
  WEIR_CHECK(CheckShape(header.shape).ok());
  std::byte* at = page.data();
  std::memset(at, 0, kRecordPage);
  StoreAs(at, kMagic);
  StoreAs(at + kAtVersion, kVersion);
  StoreAs(at + kAtFlags, static_cast<uint16_t>(header.approx ? kFlagApprox : 0));
  StoreAs(at + kAtBlocks, static_cast<uint16_t>(header.shape.blocks));
  StoreAs(at + kAtSections, static_cast<uint16_t>(header.shape.sections));
  StoreAs(at + kAtEpoch, header.stamp.epoch);
  StoreAs(at + kAtSerial, header.stamp.serial);
  StoreAs(at + kAtStore, header.stamp.store);
  StoreAs(at + kAtDomain, header.domain);
  StoreAs(at + kAtSchema, header.schema);
  StoreAs(at + kAtParent, header.parent.bytes);
  for (uint32_t i = 0; i < header.shape.sections; ++i) {
    StoreAs(at + kAtShape + i * 8, header.shape.section[i].id);
    StoreAs(at + kAtShape + i * 8 + 4, header.shape.section[i].block_bytes);
    for (uint32_t j = 0; j < header.shape.blocks; ++j) {
      StoreAs(at + kAtCrcs + (i * kRecordBlocksMax + j) * 4, header.crc[i][j]);
    }
  }
  for (uint32_t j = 0; j < header.shape.blocks; ++j) {
    StoreAs(at + kAtKeys + j * 32, header.keys[j].bytes);
  }
  StoreAs(at + kAtHeaderCrc, Crc32c(page.first(kAtHeaderCrc)));
}

absl::StatusOr<RecordHeader> DecodeHeader(std::span<const std::byte> page) {
  if (page.size() < kRecordPage) return Damaged("it is cut off");
  const std::byte* at = page.data();
  if (LoadAs<uint64_t>(at) != kMagic) return Damaged("no record begins here");
  if (LoadAs<uint32_t>(at + kAtHeaderCrc) != Crc32c(page.first(kAtHeaderCrc))) {
    return Damaged("the checksum of its header is wrong");
  }
  if (LoadAs<uint16_t>(at + kAtVersion) != kVersion) return Damaged("its version is unknown");
  RecordHeader header;
  const auto flags = LoadAs<uint16_t>(at + kAtFlags);
  if ((flags & ~kFlagApprox) != 0) return Damaged("it has flags that are unknown");
  header.approx = (flags & kFlagApprox) != 0;
  header.shape.blocks = LoadAs<uint16_t>(at + kAtBlocks);
  header.shape.sections = LoadAs<uint16_t>(at + kAtSections);
  if (header.shape.sections > kRecordSectionsMax) return Damaged("it has too many sections");
  for (uint32_t i = 0; i < header.shape.sections; ++i) {
    header.shape.section[i].id = LoadAs<uint32_t>(at + kAtShape + i * 8);
    header.shape.section[i].block_bytes = LoadAs<uint32_t>(at + kAtShape + i * 8 + 4);
  }
  if (!CheckShape(header.shape).ok()) return Damaged("its sizes are beyond the limits");
  header.stamp.epoch = LoadAs<uint32_t>(at + kAtEpoch);
  header.stamp.serial = LoadAs<uint64_t>(at + kAtSerial);
  header.stamp.store = LoadAs<std::array<uint8_t, 16>>(at + kAtStore);
  header.domain = LoadAs<DomainId>(at + kAtDomain);
  header.schema = LoadAs<Sha256Digest>(at + kAtSchema);
  header.parent.bytes = LoadAs<Sha256Digest>(at + kAtParent);
  for (uint32_t j = 0; j < header.shape.blocks; ++j) {
    header.keys[j].bytes = LoadAs<Sha256Digest>(at + kAtKeys + j * 32);
    for (uint32_t i = 0; i < header.shape.sections; ++i) {
      header.crc[i][j] = LoadAs<uint32_t>(at + kAtCrcs + (i * kRecordBlocksMax + j) * 4);
    }
  }
  return header;
}

void SealPayload(std::span<std::byte> payload, RecordHeader* header) {
  const RecordShape& shape = header->shape;
  WEIR_CHECK(payload.size() == shape.PayloadBytes());
  for (uint32_t i = 0; i < shape.sections; ++i) {
    const uint32_t block_bytes = shape.section[i].block_bytes;
    for (uint32_t j = 0; j < shape.blocks; ++j) {
      header->crc[i][j] = Crc32c(payload.subspan(shape.BlockAt(i, j), block_bytes));
    }
  }
  ClearGaps(shape, payload);
}

void ClearGaps(const RecordShape& shape, std::span<std::byte> payload) {
  for (uint32_t i = 0; i < shape.sections; ++i) {
    const uint64_t end = shape.BlockAt(i, shape.blocks);
    std::memset(payload.data() + end, 0, shape.SectionAt(i + 1) - end);
  }
}

absl::Status CheckBlock(const RecordHeader& header, uint32_t section, uint32_t block,
                        std::span<const std::byte> bytes) {
  if (section >= header.shape.sections || block >= header.shape.blocks ||
      bytes.size() != header.shape.section[section].block_bytes) {
    return Damaged("a block has another place or size than its header says");
  }
  if (IsPlanted(Planted::kServeUnchecked)) return absl::OkStatus();
  if (Crc32c(bytes) != header.crc[section][block]) {
    WEIR_REACHED("record: checksum of a block differs");
    return Damaged("the checksum of a block is wrong");
  }
  return absl::OkStatus();
}

}  // namespace weir::kv
