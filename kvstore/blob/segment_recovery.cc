// SPDX-License-Identifier: Apache-2.0
//
// How a segment log finds out what it holds: footers of finished segments, headers of the others.
#include <sys/random.h>

#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "kvstore/blob/segment_log.h"

namespace weir::kv {
namespace {

constexpr uint64_t kTailBytes = 64 * kKiB;  // one read, which holds the footer of 480 records

}  // namespace

absl::Status SegmentLog::Recover(const Found& found) {
  StoreFile file;
  bool fresh = false;
  WEIR_TRY(ReadStoreFile(&file, &fresh));
  store_ = file.store;
  epoch_ = file.epoch + 1;
  WEIR_ASSIGN(std::vector<Directory::File> files, directory_->List());
  std::vector<std::pair<SegmentName, Directory::File>> segments;
  for (Directory::File& one : files) {
    const std::optional<SegmentName> name = ParseSegmentName(one.name);
    if (!name) continue;
    if (fresh || name->epoch >= epoch_) {
      directory_->Remove(one.name).IgnoreError();  // of a store that is not known any more
      continue;
    }
    segments.emplace_back(*name, std::move(one));
  }
  std::sort(segments.begin(), segments.end(),
            [](const auto& a, const auto& b) { return a.first.segment < b.first.segment; });
  const uint32_t oldest = segments.empty() ? epoch_ : segments.front().first.epoch;
  std::vector<Tombstone> tombstones;
  for (const Tombstone& tombstone : file.tombstones) {
    if (tombstone.epoch < oldest) continue;  // nothing is left that it could cover
    tombstones.push_back(tombstone);
    tombstones_[tombstone.domain] = tombstone;
  }
  // Before a record of this epoch can exist. A disk that takes nothing may still be read.
  if (!WriteStoreFile(std::move(tombstones)).ok()) {
    WEIR_REACHED("segment log: opened without being able to write");
    stats_.writes_off = true;
  }
  for (const auto& [name, one] : segments) {
    WEIR_TRY(RecoverSegment(one, name, found));
    last_segment_ = std::max(last_segment_, name.segment);
  }
  return absl::OkStatus();
}

// Without a whole `store` nothing is known of identity and erased domains, so nothing may be
// served.
absl::Status SegmentLog::ReadStoreFile(StoreFile* file, bool* fresh) {
  absl::StatusOr<std::string> text = directory_->ReadSmall(kStoreFile, kStoreFileBytesMax);
  absl::StatusOr<StoreFile> decoded = text.ok() ? DecodeStoreFile(*text) : text.status();
  if (decoded.ok()) {
    *file = *std::move(decoded);
    return absl::OkStatus();
  }
  const Reason reason = ReasonOf(decoded.status());
  if (reason != Reason::kUnknownModel && reason != Reason::kCorrupt) return decoded.status();
  *fresh = true;
  if (getrandom(file->store.data(), file->store.size(), 0) !=
      static_cast<ssize_t>(file->store.size())) {
    return Error(Reason::kNoCapacity, "the kernel gave no random bytes");
  }
  return absl::OkStatus();
}

absl::Status SegmentLog::WriteStoreFile(std::vector<Tombstone> tombstones) {
  StoreFile file{store_, epoch_, std::move(tombstones)};
  return directory_->Replace(kStoreFile, EncodeStoreFile(file));
}

absl::Status SegmentLog::RecoverSegment(const Directory::File& file, const SegmentName& name,
                                        const Found& found) {
  auto segment = std::make_unique<Segment>();
  segment->name = name;
  segment->file_bytes = file.bytes;
  if (segments_.contains(name.segment))
    return absl::OkStatus();  // two files of one number: not of ours
  absl::StatusOr<int> fd = directory_->Open(file.name, Directory::Mode::kExisting);
  if (!fd.ok()) return absl::OkStatus();  // a miss
  segment->fd = *fd;
  uint64_t pages = file.bytes / kRecordPage;
  segment->summaries = ReadFooter(segment.get(), &pages);
  const bool finished = pages < file.bytes / kRecordPage;
  if (!finished)
    segment->summaries = ScanHeaders(segment.get());
  else
    segment->end_page = static_cast<uint32_t>(pages);
  std::vector<RecordSummary> kept;
  uint32_t end = 0;
  for (const RecordSummary& summary : segment->summaries) {
    const uint32_t page = summary.record.place.page;
    // A hole, where a record was not published, would make its neighbour seem longer than it is.
    if (page > end) segment->entries.push_back({end, 0});
    end = page + summary.pages;
    if (Erased(summary.record.domain, name.epoch, summary.serial)) {
      segment->entries.push_back({page, 0});
      continue;
    }
    segment->entries.push_back({page | Entry::kLive, found(summary.record)});
    segment->live_pages += summary.pages;
    ++stats_.records;
    kept.push_back(summary);
  }
  if (segment->end_page > end) segment->entries.push_back({end, 0});
  segment->summaries = std::move(kept);
  segment->state = Segment::State::kSealed;
  if (segment->live_pages == 0) {
    directory_->Close(segment->fd);
    directory_->Remove(file.name).IgnoreError();
    return absl::OkStatus();
  }
  if (!finished) WriteFooterNow(segment.get());
  segment->summaries.clear();
  segment->summaries.shrink_to_fit();
  segment->entries.shrink_to_fit();
  directory_->Close(segment->fd);
  segment->fd = -1;
  held_bytes_ += segment->file_bytes;
  segments_.emplace(name.segment, std::move(segment));
  return absl::OkStatus();
}

// What the footer lists; *pages becomes what lies before it, and stays if there is none.
std::vector<RecordSummary> SegmentLog::ReadFooter(Segment* segment, uint64_t* pages) {
  const uint64_t file_pages = segment->file_bytes / kRecordPage;
  if (file_pages < 3 || segment->file_bytes % kRecordPage != 0) return {};
  AlignedBuffer buffer(std::min<uint64_t>(kTailBytes, segment->file_bytes));
  if (!ReadNow(segment->fd, segment->file_bytes - buffer.bytes(), buffer.span())) return {};
  const uint32_t footer_pages = FooterPagesIn(buffer.span().last(kRecordPage));
  if (footer_pages == 0 || footer_pages >= file_pages) return {};
  const uint64_t footer_bytes = uint64_t{footer_pages} * kRecordPage;
  if (footer_bytes > buffer.bytes()) {
    buffer = AlignedBuffer(footer_bytes);
    if (!ReadNow(segment->fd, segment->file_bytes - footer_bytes, buffer.span())) return {};
  }
  const auto before = static_cast<uint32_t>(file_pages - footer_pages);
  absl::StatusOr<std::vector<RecordSummary>> records =
      DecodeFooter(store_, segment->name, buffer.span().last(footer_bytes), before);
  if (!records.ok()) {
    WEIR_REACHED("segment log: a footer is damaged");
    return {};
  }
  *pages = before;
  return *std::move(records);
}

// Records one behind the other, up to the first page that is no header of ours.
std::vector<RecordSummary> SegmentLog::ScanHeaders(Segment* segment) {
  std::vector<RecordSummary> records;
  AlignedBuffer page(kRecordPage);
  const uint64_t pages = std::min(segment->file_bytes, options_.segment_bytes) / kRecordPage;
  uint64_t serial = 0;
  segment->end_page = 0;
  while (segment->end_page < pages &&
         ReadNow(segment->fd, uint64_t{segment->end_page} * kRecordPage, page.span())) {
    const absl::StatusOr<RecordHeader> header = DecodeHeader(page.span());
    if (!header.ok() || header->stamp.store != store_ ||
        header->stamp.epoch != segment->name.epoch || header->stamp.serial <= serial) {
      break;
    }
    const RecordSummary summary = SummaryOf(*header, {segment->name.segment, segment->end_page});
    if (summary.pages > pages - segment->end_page) break;
    serial = summary.serial;
    segment->end_page += summary.pages;
    records.push_back(summary);
  }
  return records;
}

absl::StatusOr<RecordHeader> SegmentLog::Inspect(Place place) {
  WEIR_CHECK(free_operations_.size() == operations_.size());
  const Entry* entry = Find(place);
  if (entry == nullptr || !entry->live()) {
    return Error(Reason::kUnknownModel, "there is no record at this place", "place");
  }
  Segment* segment = segments_.at(place.segment).get();
  WEIR_TRY(OpenFile(segment));
  AlignedBuffer page(kRecordPage);
  if (!ReadNow(segment->fd, uint64_t{place.page} * kRecordPage, page.span())) {
    return Error(Reason::kPeerLost, "the disk tier could not read a record");
  }
  return DecodeHeader(page.span());
}

bool SegmentLog::ReadNow(int fd, uint64_t offset, std::span<std::byte> into) {
  IoRequest request{.kind = IoRequest::Kind::kRead, .fd = fd, .offset = offset, .part_count = 1};
  request.parts[0] = {into.data(), into.size()};
  std::vector<IoResult> results;
  if (!directory_->Submit(request)) return false;
  directory_->Poll(IoWait::kForOne, &results);
  return results.size() == 1 && results[0].bytes == static_cast<int64_t>(into.size());
}

// Gives an unfinished segment of an earlier life its footer and its space back.
bool SegmentLog::WriteFooterNow(Segment* segment) {
  const uint32_t pages = FooterPages(segment->summaries.size());
  AlignedBuffer footer(uint64_t{pages} * kRecordPage);
  EncodeFooter(store_, segment->name, segment->summaries, footer.span());
  const uint64_t file_bytes = uint64_t{segment->end_page + pages} * kRecordPage;
  IoRequest request{.kind = IoRequest::Kind::kWrite,
                    .fd = segment->fd,
                    .offset = uint64_t{segment->end_page} * kRecordPage,
                    .part_count = 1};
  request.parts[0] = {footer.data(), footer.bytes()};
  std::vector<IoResult> results;
  if (!directory_->Truncate(segment->fd, file_bytes).ok()) return false;
  segment->file_bytes = file_bytes;
  if (!directory_->Submit(request)) return false;
  directory_->Poll(IoWait::kForOne, &results);
  return results.size() == 1 && results[0].bytes == static_cast<int64_t>(footer.bytes());
}

}  // namespace weir::kv
