// SPDX-License-Identifier: Apache-2.0
#include "kvstore/blob/segment_log.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "base/stdx/status.h"

namespace weir::kv {
namespace {

constexpr uint32_t kRefusalsBeforeRetry = 32;  // of appends, after the disk said it is full
constexpr uint64_t kSegmentBytesMax = 512 * kMiB;
constexpr uint64_t kUnusedShare = 32;

absl::Status Miss(std::string_view why) { return Error(Reason::kUnknownModel, why, "place"); }

}  // namespace

SegmentLog::SegmentLog(std::unique_ptr<Directory> directory, const SegmentLogOptions& options)
    : directory_(std::move(directory)),
      options_(options),
      operations_(options.operations_max + 4),  // the last are for footers and kept records
      pages_(uint64_t{options.operations_max + 4} * kRecordPage) {
  for (size_t i = operations_.size(); i > 0; --i)
    free_operations_.push_back(static_cast<int>(i - 1));
}

absl::StatusOr<std::unique_ptr<SegmentLog>> SegmentLog::Open(std::unique_ptr<Directory> directory,
                                                             const SegmentLogOptions& options,
                                                             const Found& found) {
  if (options.segment_bytes % kRecordPage != 0 || options.segment_bytes > kSegmentBytesMax ||
      options.segment_bytes < 16 * kRecordPage) {
    return Error(Reason::kBadField, "a segment is whole pages of 4096 bytes, 64 KiB to 512 MiB",
                 "segment_bytes");
  }
  if (options.capacity_bytes < 4 * options.segment_bytes) {
    return Error(Reason::kBadField, "the disk tier holds at least four segments", "capacity_bytes");
  }
  std::unique_ptr<SegmentLog> log(new SegmentLog(std::move(directory), options));
  WEIR_TRY(log->Recover(found));
  return log;
}

SegmentLog::~SegmentLog() {
  // Buffers of callers and our own may still be in use by the kernel.
  closing_ = true;
  Drain();
  for (const uint32_t head : heads_) {
    if (head != 0) Seal(segments_.at(head).get());
  }
  Drain();
  for (auto& [number, segment] : segments_) {
    if (segment->fd >= 0) directory_->Close(segment->fd);
  }
}

void SegmentLog::Drain() {
  std::vector<BlobEvent> ignored;
  while (free_operations_.size() < operations_.size()) {
    const size_t before = free_operations_.size();
    Poll(IoWait::kForOne, &ignored);
    if (free_operations_.size() == before && results_.empty()) break;  // the disk's queue is broken
  }
}

absl::StatusOr<BlobId> SegmentLog::Append(const RecordHeader& header,
                                          std::span<const std::byte> payload, BlobTag tag) {
  WEIR_TRY(CheckShape(header.shape));
  if (payload.size() != header.shape.PayloadBytes() ||
      reinterpret_cast<uintptr_t>(payload.data()) % kRecordPage != 0) {
    return Error(Reason::kBadField, "a payload has another size than its shape or is not aligned",
                 "payload");
  }
  // Reads do not wait for writes: half of the operations are theirs. Four of all stay for footers
  // and for records that are kept.
  const bool full =
      free_operations_.size() <= 4 || appends_ >= options_.operations_max / 2 ||
      (append_bytes_ > 0 && append_bytes_ + payload.size() > options_.append_bytes_max);
  absl::StatusOr<BlobId> id =
      full ? Error(Reason::kQueueFull, "the disk tier has too many writes under way")
           : StartAppend(header, payload, tag, Head::kFresh);
  if (!id.ok()) ++stats_.appends_refused;
  return id;
}

absl::StatusOr<BlobId> SegmentLog::StartAppend(const RecordHeader& header,
                                               std::span<const std::byte> payload, BlobTag tag,
                                               Head head) {
  if (stats_.writes_off)
    return Error(Reason::kNoCapacity, "the disk tier stopped writing after errors");
  const uint64_t bytes = header.shape.RecordBytes();
  WEIR_ASSIGN(Segment * segment, HeadWithRoom(head, bytes / kRecordPage));
  const Operation::Kind kind =
      head == Head::kFresh ? Operation::Kind::kAppend : Operation::Kind::kKeepWrite;
  const int index = TakeOperation(kind, segment);
  Operation& operation = operations_[static_cast<size_t>(index)];
  operation.place = {segment->name.segment, segment->end_page};
  operation.tag = tag;
  operation.domain = header.domain;

  RecordHeader stamped = header;
  stamped.stamp = {store_, segment->name.epoch, ++serial_};
  std::byte* page = pages_.data() + static_cast<size_t>(index) * kRecordPage;
  EncodeHeader(stamped, std::span<std::byte, kRecordPage>(page, kRecordPage));
  segment->entries.push_back({segment->end_page, tag});
  segment->summaries.push_back(SummaryOf(stamped, operation.place));
  segment->end_page += static_cast<uint32_t>(bytes / kRecordPage);
  ++segment->writes;
  append_bytes_ += payload.size();
  ++appends_;

  operation.requests = 1;
  operation.bytes = bytes;
  IoRequest request{.kind = IoRequest::Kind::kWrite,
                    .fd = segment->fd,
                    .offset = uint64_t{operation.place.page} * kRecordPage,
                    .part_count = 2,
                    .cookie = static_cast<uint64_t>(index)};
  request.parts[0] = {page, kRecordPage};
  request.parts[1] = {const_cast<std::byte*>(payload.data()), payload.size()};
  Send(request);
  return operation.id;
}

// The open segment of a head, a new one if this one is full.
absl::StatusOr<SegmentLog::Segment*> SegmentLog::HeadWithRoom(Head head, uint64_t pages) {
  const uint64_t segment_pages = options_.segment_bytes / kRecordPage;
  if (pages + FooterPages(1) > segment_pages) {
    return Error(Reason::kBadField, "a record is larger than a segment", "payload");
  }
  uint32_t& number = heads_[static_cast<size_t>(head)];
  if (number != 0) {
    Segment* segment = segments_.at(number).get();
    const uint64_t needed = segment->end_page + pages + FooterPages(segment->entries.size() + 1);
    if (needed <= segment_pages) return segment;
    number = 0;
    Seal(segment);
  }
  WEIR_ASSIGN(Segment * fresh, NewSegment());
  number = fresh->name.segment;
  return fresh;
}

absl::StatusOr<SegmentLog::Segment*> SegmentLog::NewSegment() {
  if (held_bytes_ + options_.segment_bytes > options_.capacity_bytes) {
    WEIR_REACHED("segment log: full until a segment goes");
    return Error(Reason::kNoCapacity, "the disk tier is full until a segment is evicted");
  }
  if (refusals_left_ > 0) {
    --refusals_left_;
    return Error(Reason::kNoCapacity, "the disk has no space for the disk tier");
  }
  auto segment = std::make_unique<Segment>();
  segment->name = {epoch_, ++last_segment_};
  const std::string name = NameOf(segment->name);
  absl::StatusOr<int> fd = directory_->Open(name, Directory::Mode::kCreate);
  absl::Status allocated =
      fd.ok() ? directory_->Allocate(*fd, options_.segment_bytes) : fd.status();
  if (!allocated.ok()) {
    WEIR_REACHED("segment log: no space for a segment");
    if (fd.ok()) {
      directory_->Close(*fd);
      directory_->Remove(name)
          .IgnoreError();  // whatever is left is counted when the store opens again
    }
    refusals_left_ = kRefusalsBeforeRetry;
    return Error(Reason::kNoCapacity, "the disk has no space for the disk tier");
  }
  segment->fd = *fd;
  segment->file_bytes = options_.segment_bytes;
  held_bytes_ += segment->file_bytes;
  return segments_.emplace(segment->name.segment, std::move(segment)).first->second.get();
}

void SegmentLog::Seal(Segment* segment) {
  segment->state = Segment::State::kSealing;
  if (segment->writes == 0) WriteFooter(segment);
}

void SegmentLog::WriteFooter(Segment* segment) {
  std::vector<RecordSummary> live;
  for (size_t i = 0; i < segment->entries.size(); ++i) {
    if (segment->entries[i].live()) live.push_back(segment->summaries[i]);
  }
  segment->summaries.clear();
  segment->summaries.shrink_to_fit();
  const uint32_t pages = FooterPages(live.size());
  uint64_t file_bytes = uint64_t{segment->end_page + pages} * kRecordPage;
  // To cut a file waits for the file system's journal, so a little space at its end stays unused.
  if (segment->file_bytes - file_bytes <= segment->file_bytes / kUnusedShare)
    file_bytes = segment->file_bytes;
  // Without a footer the next start reads headers instead.
  if (stats_.writes_off || (file_bytes < segment->file_bytes &&
                            !directory_->Truncate(segment->fd, file_bytes).ok())) {
    segment->state = Segment::State::kSealed;
    return;
  }
  held_bytes_ = held_bytes_ - segment->file_bytes + file_bytes;
  segment->file_bytes = file_bytes;
  segment->footer = AlignedBuffer(uint64_t{pages} * kRecordPage);
  EncodeFooter(store_, segment->name, live, segment->footer.span());
  const int index = TakeOperation(Operation::Kind::kFooter, segment);
  Operation& operation = operations_[static_cast<size_t>(index)];
  operation.requests = 1;
  operation.bytes = segment->footer.bytes();
  ++segment->writes;
  IoRequest request{.kind = IoRequest::Kind::kWrite,
                    .fd = segment->fd,
                    .offset = file_bytes - segment->footer.bytes(),
                    .part_count = 1,
                    .cookie = static_cast<uint64_t>(index)};
  request.parts[0] = {segment->footer.data(), segment->footer.bytes()};
  Send(request);
}

absl::StatusOr<BlobId> SegmentLog::Read(const BlobRead& read) {
  WEIR_TRY(CheckRead(read));
  if (free_operations_.size() <= 4) {
    return Error(Reason::kQueueFull, "the disk tier has too many reads under way");
  }
  Entry* entry = Find(read.place);
  if (entry == nullptr || !entry->live()) return Miss("there is no record at this place");
  Segment* segment = segments_.at(read.place.segment).get();
  if (PagesOf(*segment, *entry) * uint64_t{kRecordPage} != read.shape.RecordBytes()) {
    return Miss("the record at this place has another size");
  }
  WEIR_TRY(OpenFile(segment));
  entry->bits |= Entry::kHit;
  ++segment->reads;
  const int index = TakeOperation(Operation::Kind::kRead, segment);
  Operation& operation = operations_[static_cast<size_t>(index)];
  operation.place = read.place;
  operation.tag = entry->tag;
  operation.read = read;

  const uint64_t at = uint64_t{read.place.page} * kRecordPage;
  IoRequest request{.kind = IoRequest::Kind::kRead,
                    .fd = segment->fd,
                    .offset = at,
                    .part_count = 1,
                    .cookie = static_cast<uint64_t>(index)};
  request.parts[0] = {pages_.data() + static_cast<size_t>(index) * kRecordPage, kRecordPage};
  uint64_t end = at + kRecordPage;  // of the request so far
  const auto send = [&] {
    for (uint32_t i = 0; i < request.part_count; ++i) operation.bytes += request.parts[i].iov_len;
    ++operation.requests;
    Send(request);
  };
  const ReadPlan plan = PlanRead(read.shape, read.first, read.count, read.sections);
  for (uint32_t i = 0; i < plan.part_count; ++i) {
    const ReadPlan::Part& part = plan.parts[i];
    const uint64_t offset = at + kRecordPage + part.payload_at;
    iovec& tail = request.parts[request.part_count - 1];
    std::byte* into = read.into.data() + part.buffer_at;
    if (offset == end && static_cast<std::byte*>(tail.iov_base) + tail.iov_len == into) {
      tail.iov_len += part.bytes;  // the next section: one request for both
    } else if (offset == end && request.part_count < request.parts.size()) {
      request.parts[request.part_count++] = {into, part.bytes};
    } else {
      send();
      request.offset = offset;
      request.part_count = 1;
      request.parts[0] = {into, part.bytes};
    }
    end = offset + part.bytes;
  }
  send();
  return operation.id;
}

void SegmentLog::Poll(IoWait wait, std::vector<BlobEvent>* out) {
  while (!outbox_.empty() && directory_->Submit(outbox_.front())) outbox_.pop_front();
  results_.clear();
  directory_->Poll(wait, &results_);
  const std::vector<IoResult> results = results_;  // finishing one may post others
  for (const IoResult& result : results) {
    Operation& operation = operations_[result.cookie];
    if (result.bytes < 0)
      operation.failed = true;
    else
      operation.moved += static_cast<uint64_t>(result.bytes);
    if (--operation.requests == 0) Finish(static_cast<int>(result.cookie), out);
  }
  Collect(out);
  while (!outbox_.empty() && directory_->Submit(outbox_.front())) outbox_.pop_front();
}

int SegmentLog::TakeOperation(Operation::Kind kind, Segment* segment) {
  WEIR_CHECK(!free_operations_.empty());
  const int index = free_operations_.back();
  free_operations_.pop_back();
  Operation& operation = operations_[static_cast<size_t>(index)];
  operation = {};
  operation.kind = kind;
  operation.id = ++last_id_;
  operation.segment = segment->name.segment;
  return index;
}

void SegmentLog::Send(const IoRequest& request) {
  if (!outbox_.empty() || !directory_->Submit(request)) outbox_.push_back(request);
}

void SegmentLog::Finish(int index, std::vector<BlobEvent>* out) {
  Operation& operation = operations_[static_cast<size_t>(index)];
  Segment& segment = *segments_.at(operation.segment);
  if (operation.moved != operation.bytes) operation.failed = true;  // a short count
  bool seal = false;
  switch (operation.kind) {
    case Operation::Kind::kFree:
      WEIR_CHECK(false);
      break;
    case Operation::Kind::kAppend:
    case Operation::Kind::kKeepWrite:
      FinishAppend(operation, segment, out);
      seal = segment.state == Segment::State::kSealing && segment.writes == 0;
      break;
    case Operation::Kind::kRead:
      FinishRead(index, segment, out);
      break;
    case Operation::Kind::kKeepRead:
      FinishKeepRead(index, segment);
      break;
    case Operation::Kind::kFooter:
      if (!operation.failed) {  // the same operation goes on to sync
        operation.kind = Operation::Kind::kSync;
        operation.requests = 1;
        operation.bytes = operation.moved = 0;
        Send({.kind = IoRequest::Kind::kSync,
              .fd = segment.fd,
              .cookie = static_cast<uint64_t>(index)});
        return;
      }
      [[fallthrough]];
    case Operation::Kind::kSync:
      --segment.writes;
      segment.footer = {};
      segment.entries.shrink_to_fit();
      segment.state = Segment::State::kSealed;
      break;
  }
  operation.kind = Operation::Kind::kFree;
  free_operations_.push_back(index);
  if (seal) WriteFooter(&segment);
  MaybeRemove(&segment);
}

void SegmentLog::FinishAppend(Operation& operation, Segment& segment, std::vector<BlobEvent>* out) {
  --segment.writes;
  append_bytes_ -= operation.bytes - kRecordPage;
  --appends_;
  Entry* entry = Find(operation.place);
  WEIR_CHECK(entry != nullptr);
  absl::Status status;
  if (operation.failed) {
    WEIR_REACHED("segment log: a write failed");
    ++stats_.write_errors;
    if (++errors_in_row_ >= options_.write_errors_max) stats_.writes_off = true;
    status = Error(Reason::kPeerLost, "the disk tier could not write a record");
  } else {
    errors_in_row_ = 0;
    if (operation.erased) {
      WEIR_REACHED("segment log: erased while it was written");
      status = Error(Reason::kCancelled, "the domain was erased meanwhile", "domain");
    }
  }
  if (status.ok()) {
    entry->bits |= Entry::kLive;
    const auto pages = static_cast<uint32_t>(operation.bytes / kRecordPage);
    segment.live_pages += pages;
    ++stats_.records;
    (operation.kind == Operation::Kind::kAppend ? stats_.written_bytes : stats_.moved_bytes) +=
        operation.bytes;
  }
  if (operation.kind == Operation::Kind::kKeepWrite) {
    operation.failed = !status.ok();
    FinishKeepWrite(operation, segment, out);
    return;
  }
  out->push_back({BlobEvent::Kind::kAppended,
                  operation.id,
                  std::move(status),
                  operation.place,
                  {},
                  operation.tag});
}

void SegmentLog::FinishRead(int index, Segment& segment, std::vector<BlobEvent>* out) {
  Operation& operation = operations_[static_cast<size_t>(index)];
  --segment.reads;
  absl::Status status;
  if (operation.failed) {
    ++stats_.read_errors;
    status = Error(Reason::kPeerLost, "the disk tier could not read a record");
  } else {
    stats_.read_bytes += operation.bytes;
    absl::StatusOr<RecordHeader> header = HeaderOf(index, segment);
    status = header.ok() ? VerifyRead(operation.read, *header) : header.status();
    if (header.ok() && operation.read.header != nullptr) *operation.read.header = *header;
  }
  const Reason reason = ReasonOf(status);
  out->push_back({BlobEvent::Kind::kRead,
                  operation.id,
                  std::move(status),
                  operation.place,
                  {},
                  operation.tag});
  if (reason != Reason::kCorrupt) return;
  ++stats_.damaged;
  Entry* entry = Find(operation.place);
  if (entry == nullptr || !entry->live()) return;
  Forget(&segment, entry);
  out->push_back({BlobEvent::Kind::kGone, 0, absl::OkStatus(), operation.place, {}, operation.tag});
}

// The header that an operation read, if this store wrote it into this segment and has not erased
// it.
absl::StatusOr<RecordHeader> SegmentLog::HeaderOf(int index, const Segment& segment) {
  const std::byte* page = pages_.data() + static_cast<size_t>(index) * kRecordPage;
  WEIR_ASSIGN(RecordHeader header, DecodeHeader({page, kRecordPage}));
  if (header.stamp.store != store_ || header.stamp.epoch != segment.name.epoch) {
    return Error(Reason::kCorrupt, "a stored record is of another store");
  }
  if (Erased(header.domain, header.stamp.epoch, header.stamp.serial)) {
    WEIR_REACHED("segment log: read of an erased record");
    return Error(Reason::kCorrupt, "the record's domain was erased");
  }
  return header;
}

absl::Status SegmentLog::OpenFile(Segment* segment) {
  if (segment->fd >= 0) return absl::OkStatus();
  WEIR_ASSIGN(segment->fd, directory_->Open(NameOf(segment->name), Directory::Mode::kExisting));
  return absl::OkStatus();
}

SegmentLog::Entry* SegmentLog::Find(Place place) {
  const auto found = segments_.find(place.segment);
  if (found == segments_.end()) return nullptr;
  std::vector<Entry>& entries = found->second->entries;
  const auto at =
      std::lower_bound(entries.begin(), entries.end(), place.page,
                       [](const Entry& entry, uint32_t page) { return entry.page() < page; });
  return at == entries.end() || at->page() != place.page ? nullptr : &*at;
}

uint32_t SegmentLog::PagesOf(const Segment& segment, const Entry& entry) const {
  const Entry* next = &entry + 1;
  const bool last = next == segment.entries.data() + segment.entries.size();
  return (last ? segment.end_page : next->page()) - entry.page();
}

void SegmentLog::Forget(Segment* segment, Entry* entry) {
  WEIR_CHECK(entry->live());
  entry->bits &= ~Entry::kLive;
  segment->live_pages -= PagesOf(*segment, *entry);
  --stats_.records;
}

void SegmentLog::Drop(Place place) {
  Entry* entry = Find(place);
  if (entry == nullptr || !entry->live()) return;
  Segment* segment = segments_.at(place.segment).get();
  Forget(segment, entry);
  if (segment->live_pages == 0 && segment->state == Segment::State::kSealed &&
      collection_.victim != place.segment) {
    segment->state = Segment::State::kDying;
  }
  MaybeRemove(segment);
}

bool SegmentLog::Erased(const DomainId& domain, uint32_t epoch, uint64_t serial) const {
  const auto found = tombstones_.find(domain);
  return found != tombstones_.end() && found->second.Covers(epoch, serial) &&
         !IsPlanted(Planted::kEraseForgets);
}

absl::Status SegmentLog::EraseDomain(const DomainId& domain) {
  std::vector<Tombstone> all;
  const Tombstone fresh{domain, epoch_, serial_};
  all.push_back(fresh);
  const uint32_t oldest = segments_.empty() ? epoch_ : segments_.begin()->second->name.epoch;
  for (const auto& [other, tombstone] : tombstones_) {
    if (other != domain && tombstone.epoch >= oldest) all.push_back(tombstone);
  }
  if (all.size() > kTombstonesMax) {
    return Error(Reason::kNoCapacity, "too many domains are erased from the disk tier", "domain");
  }
  tombstones_[domain] = fresh;
  for (Operation& operation : operations_) {
    const bool writes =
        operation.kind == Operation::Kind::kAppend || operation.kind == Operation::Kind::kKeepWrite;
    if (writes && operation.domain == domain) operation.erased = true;
  }
  return WriteStoreFile(std::move(all));
}

// A segment that nobody needs goes when the last read of it is done.
void SegmentLog::MaybeRemove(Segment* segment) {
  if (segment->state != Segment::State::kDying || segment->reads > 0 || segment->writes > 0) return;
  if (segment->fd >= 0) directory_->Close(segment->fd);
  directory_->Remove(NameOf(segment->name))
      .IgnoreError();  // gone already, or counted at the next start
  held_bytes_ -= segment->file_bytes;
  segments_.erase(segment->name.segment);
}

BlobStats SegmentLog::stats() const {
  BlobStats stats = stats_;
  stats.held_bytes = held_bytes_;
  stats.segments = segments_.size();
  constexpr uint64_t kNodeBytes = sizeof(Segment) + 64;  // with its place in the map
  for (const auto& [number, segment] : segments_) {
    stats.live_bytes += uint64_t{segment->live_pages} * kRecordPage;
    stats.index_bytes += kNodeBytes + segment->entries.capacity() * sizeof(Entry);
  }
  return stats;
}

}  // namespace weir::kv
