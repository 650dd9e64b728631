// SPDX-License-Identifier: Apache-2.0
#include "kvstore/blob/segment_format.h"

#include <cstdio>
#include <cstring>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/status.h"

namespace weir::kv {
namespace {

constexpr uint64_t kFooterMagic = 0x3146'5347'5249'4557;  // "WEIRGSF1"
constexpr uint64_t kStoreMagic = 0x3153'564b'5249'4557;   // "WEIRKVS1"

// The last bytes of a segment's last page.
struct FooterTail {
  uint64_t magic;
  uint8_t store[16];
  uint32_t epoch;
  uint32_t segment;
  uint32_t records;
  uint32_t pages;
  uint32_t entries_crc;
  uint32_t tail_crc;  // of the fields before
};
static_assert(sizeof(FooterTail) == 48);
constexpr size_t kTailCrcAt = sizeof(FooterTail) - 4;

struct FooterEntry {
  uint32_t page;
  uint32_t pages;
  uint64_t serial;
  uint8_t domain[16];
  uint64_t parent[2];
  uint64_t last[2];
  uint16_t blocks;
  uint16_t approx;
  uint16_t fingerprints[kRecordBlocksMax];
  uint32_t unused;
};
static_assert(sizeof(FooterEntry) == 136);

struct StoreHead {
  uint64_t magic;
  uint8_t store[16];
  uint32_t epoch;
  uint32_t tombstones;
};
static_assert(sizeof(StoreHead) == 32);

struct StoreTombstone {
  uint8_t domain[16];
  uint64_t serial;
  uint32_t epoch;
  uint32_t unused;
};
static_assert(sizeof(StoreTombstone) == 32);

absl::Status Damaged(const char* what) {
  return Error(Reason::kCorrupt, std::string("a file of the store is damaged: ") + what);
}

FooterEntry EntryOf(const RecordSummary& summary) {
  const FoundRecord& record = summary.record;
  FooterEntry entry{};
  entry.page = record.place.page;
  entry.pages = summary.pages;
  entry.serial = summary.serial;
  std::memcpy(entry.domain, record.domain.data(), sizeof(entry.domain));
  entry.parent[0] = record.parent.hi;
  entry.parent[1] = record.parent.lo;
  entry.last[0] = record.last.hi;
  entry.last[1] = record.last.lo;
  entry.blocks = static_cast<uint16_t>(record.blocks);
  entry.approx = record.approx ? 1 : 0;
  std::memcpy(entry.fingerprints, record.fingerprints.data(), sizeof(entry.fingerprints));
  return entry;
}

RecordSummary SummaryOf(const FooterEntry& entry, uint32_t segment) {
  RecordSummary summary;
  FoundRecord& record = summary.record;
  record.place = {segment, entry.page};
  summary.pages = entry.pages;
  summary.serial = entry.serial;
  std::memcpy(record.domain.data(), entry.domain, sizeof(entry.domain));
  record.parent = {entry.parent[0], entry.parent[1]};
  record.last = {entry.last[0], entry.last[1]};
  record.blocks = entry.blocks;
  record.approx = entry.approx != 0;
  std::memcpy(record.fingerprints.data(), entry.fingerprints, sizeof(entry.fingerprints));
  return summary;
}

}  // namespace

RecordSummary SummaryOf(const RecordHeader& header, Place place) {
  RecordSummary summary;
  FoundRecord& record = summary.record;
  record.place = place;
  summary.pages = static_cast<uint32_t>(header.shape.RecordBytes() / kRecordPage);
  summary.serial = header.stamp.serial;
  record.domain = header.domain;
  record.parent = header.parent.index();
  record.last = header.last().index();
  record.blocks = header.shape.blocks;
  record.approx = header.approx;
  for (uint32_t i = 0; i < record.blocks; ++i) {
    record.fingerprints[i] = header.keys[i].fingerprint();
  }
  return summary;
}

std::string NameOf(const SegmentName& name) {
  char text[32];
  std::snprintf(text, sizeof(text), "seg-%08x-%08x", name.epoch, name.segment);
  return text;
}

std::optional<SegmentName> ParseSegmentName(std::string_view name) {
  if (name.size() != 21) return std::nullopt;
  SegmentName parsed;
  const std::string text(name);
  if (std::sscanf(text.c_str(), "seg-%8x-%8x", &parsed.epoch, &parsed.segment) != 2)
    return std::nullopt;
  if (NameOf(parsed) != name || parsed.segment == 0) return std::nullopt;
  return parsed;
}

uint32_t FooterPages(size_t records) {
  const uint64_t bytes = records * sizeof(FooterEntry) + sizeof(FooterTail);
  return static_cast<uint32_t>(CeilDiv<uint64_t>(bytes, kRecordPage));
}

void EncodeFooter(const std::array<uint8_t, 16>& store, const SegmentName& name,
                  std::span<const RecordSummary> records, std::span<std::byte> out) {
  const uint32_t pages = FooterPages(records.size());
  WEIR_CHECK(out.size() == uint64_t{pages} * kRecordPage);
  std::memset(out.data(), 0, out.size());
  for (size_t i = 0; i < records.size(); ++i) {
    StoreAs(out.data() + i * sizeof(FooterEntry), EntryOf(records[i]));
  }
  FooterTail tail{};
  tail.magic = kFooterMagic;
  std::memcpy(tail.store, store.data(), store.size());
  tail.epoch = name.epoch;
  tail.segment = name.segment;
  tail.records = static_cast<uint32_t>(records.size());
  tail.pages = pages;
  tail.entries_crc = Crc32c(out.first(records.size() * sizeof(FooterEntry)));
  tail.tail_crc = Crc32c(std::as_bytes(std::span(&tail, 1)).first(kTailCrcAt));
  StoreAs(out.data() + out.size() - sizeof(FooterTail), tail);
}

uint32_t FooterPagesIn(std::span<const std::byte> last_page) {
  if (last_page.size() != kRecordPage) return 0;
  const auto tail = LoadAs<FooterTail>(last_page.data() + kRecordPage - sizeof(FooterTail));
  if (tail.magic != kFooterMagic) return 0;
  if (tail.tail_crc != Crc32c(std::as_bytes(std::span(&tail, 1)).first(kTailCrcAt))) return 0;
  return tail.pages == FooterPages(tail.records) ? tail.pages : 0;
}

absl::StatusOr<std::vector<RecordSummary>> DecodeFooter(const std::array<uint8_t, 16>& store,
                                                        const SegmentName& name,
                                                        std::span<const std::byte> pages,
                                                        uint32_t pages_before_footer) {
  if (pages.size() < kRecordPage ||
      FooterPagesIn(pages.last(kRecordPage)) * uint64_t{kRecordPage} != pages.size()) {
    return Damaged("a footer is cut off");
  }
  const auto tail = LoadAs<FooterTail>(pages.data() + pages.size() - sizeof(FooterTail));
  if (std::memcmp(tail.store, store.data(), store.size()) != 0 || tail.epoch != name.epoch ||
      tail.segment != name.segment) {
    return Damaged("a footer is of another segment");
  }
  if (tail.entries_crc != Crc32c(pages.first(tail.records * sizeof(FooterEntry)))) {
    return Damaged("the checksum of a footer is wrong");
  }
  std::vector<RecordSummary> records;
  records.reserve(tail.records);
  uint32_t end = 0;
  for (uint32_t i = 0; i < tail.records; ++i) {
    const auto entry = LoadAs<FooterEntry>(pages.data() + i * sizeof(FooterEntry));
    const bool fits = entry.page >= end && entry.page <= pages_before_footer && entry.pages >= 2 &&
                      entry.pages <= pages_before_footer - entry.page && entry.blocks >= 1 &&
                      entry.blocks <= kRecordBlocksMax;
    if (!fits) return Damaged("a footer lists a record that cannot be");
    end = entry.page + entry.pages;
    records.push_back(SummaryOf(entry, name.segment));
  }
  return records;
}

std::string EncodeStoreFile(const StoreFile& file) {
  StoreHead head{};
  head.magic = kStoreMagic;
  std::memcpy(head.store, file.store.data(), file.store.size());
  head.epoch = file.epoch;
  head.tombstones = static_cast<uint32_t>(file.tombstones.size());
  std::string text(sizeof(head) + file.tombstones.size() * sizeof(StoreTombstone) + 4, '\0');
  StoreAs(text.data(), head);
  for (size_t i = 0; i < file.tombstones.size(); ++i) {
    StoreTombstone stone{};
    std::memcpy(stone.domain, file.tombstones[i].domain.data(), sizeof(stone.domain));
    stone.serial = file.tombstones[i].serial;
    stone.epoch = file.tombstones[i].epoch;
    StoreAs(text.data() + sizeof(head) + i * sizeof(stone), stone);
  }
  const size_t crc_at = text.size() - 4;
  StoreAs(text.data() + crc_at, Crc32c(BytesOf(std::string_view(text).substr(0, crc_at))));
  return text;
}

absl::StatusOr<StoreFile> DecodeStoreFile(std::string_view text) {
  if (text.size() < sizeof(StoreHead) + 4) return Damaged("\"store\" is cut off");
  const size_t crc_at = text.size() - 4;
  if (LoadAs<uint32_t>(text.data() + crc_at) != Crc32c(BytesOf(text.substr(0, crc_at)))) {
    return Damaged("the checksum of \"store\" is wrong");
  }
  const auto head = LoadAs<StoreHead>(text.data());
  if (head.magic != kStoreMagic || head.tombstones > kTombstonesMax ||
      sizeof(StoreHead) + head.tombstones * sizeof(StoreTombstone) != crc_at) {
    return Damaged("\"store\" is of another kind");
  }
  StoreFile file;
  std::memcpy(file.store.data(), head.store, sizeof(head.store));
  file.epoch = head.epoch;
  for (uint32_t i = 0; i < head.tombstones; ++i) {
    const auto stone =
        LoadAs<StoreTombstone>(text.data() + sizeof(StoreHead) + i * sizeof(StoreTombstone));
    Tombstone tombstone;
    std::memcpy(tombstone.domain.data(), stone.domain, sizeof(stone.domain));
    tombstone.epoch = stone.epoch;
    tombstone.serial = stone.serial;
    file.tombstones.push_back(tombstone);
  }
  return file;
}

}  // namespace weir::kv
