// SPDX-License-Identifier: Apache-2.0
//
// What else lies in a segment store's folder: the footer of a finished segment, which lists its
// records, and the file `store`, which says whose the folder is and which domains were erased. Pure
// functions for any thread; bytes are taken for hostile and answered with kCorrupt.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/blob/blob_store.h"
#include "kvstore/blob/record.h"

namespace weir::kv {

inline constexpr std::string_view kStoreFile = "store";
inline constexpr size_t kTombstonesMax = 4096;
inline constexpr uint64_t kStoreFileBytesMax = 256 * kKiB;

// One record of a segment, as its footer lists it.
struct RecordSummary {
  FoundRecord record;  // place.segment is not stored
  uint32_t pages = 0;  // header included
  uint64_t serial = 0;
};
RecordSummary SummaryOf(const RecordHeader& header, Place place);

struct SegmentName {
  uint32_t epoch = 0;
  uint32_t segment = 0;
};
std::string NameOf(const SegmentName& name);
// Nothing for files that are not segments of ours.
std::optional<SegmentName> ParseSegmentName(std::string_view name);

// Pages of a footer of so many records.
uint32_t FooterPages(size_t records);
// `out` has FooterPages(records.size()) pages, which become the last of the file.
void EncodeFooter(const std::array<uint8_t, 16>& store, const SegmentName& name,
                  std::span<const RecordSummary> records, std::span<std::byte> out);
// Pages of the footer that ends with `last_page`; 0 when none does.
uint32_t FooterPagesIn(std::span<const std::byte> last_page);
// `pages` is the whole footer; records must lie in order before `pages_before_footer`.
absl::StatusOr<std::vector<RecordSummary>> DecodeFooter(const std::array<uint8_t, 16>& store,
                                                        const SegmentName& name,
                                                        std::span<const std::byte> pages,
                                                        uint32_t pages_before_footer);

// Records of `domain` up to this stamp are erased.
struct Tombstone {
  DomainId domain{};
  uint32_t epoch = 0;
  uint64_t serial = 0;

  bool Covers(uint32_t record_epoch, uint64_t record_serial) const {
    return record_epoch < epoch || (record_epoch == epoch && record_serial <= serial);
  }
};

struct StoreFile {
  std::array<uint8_t, 16> store{};
  uint32_t epoch = 0;
  std::vector<Tombstone> tombstones;
};
std::string EncodeStoreFile(const StoreFile& file);
absl::StatusOr<StoreFile> DecodeStoreFile(std::string_view text);

}  // namespace weir::kv
