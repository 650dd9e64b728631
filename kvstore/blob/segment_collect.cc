// SPDX-License-Identifier: Apache-2.0
//
// How a segment log makes room: one segment at a time, what was read of it is written again, the
// rest goes.
#include <algorithm>

#include "base/stdx/check.h"
#include "kvstore/blob/segment_log.h"

namespace weir::kv {

void SegmentLog::Collect(std::vector<BlobEvent>* out) {
  if (collection_.waiting || closing_) return;
  if (collection_.victim == 0) {
    if (held_bytes_ + 2 * options_.segment_bytes <= options_.capacity_bytes) return;
    collection_.victim = ChooseVictim();
    collection_.next = 0;
    collection_.kept_pages = 0;
    if (collection_.victim == 0) return;  // everything is still being written
  }
  // A record that is kept takes up to three: its read, its write and a footer.
  if (free_operations_.size() >= 4) KeepNext(out);
}

// The greatest (1 - u) * age / (1 + u), u being the share of live bytes; the oldest among equals,
// which is plain first in, first out as long as nothing was dropped.
uint32_t SegmentLog::ChooseVictim() const {
  uint32_t best = 0;
  double best_score = -1;
  for (const auto& [number, segment] : segments_) {
    if (segment->state != Segment::State::kSealed) continue;
    const double used = static_cast<double>(segment->live_pages) / std::max(1u, segment->end_page);
    const double age = last_segment_ - number + 1;
    const double score = (1 - used) * age / (1 + used);
    if (score > best_score) {
      best = number;
      best_score = score;
    }
  }
  return best;
}

bool SegmentLog::MayKeep(uint64_t pages) const {
  const uint64_t bytes = pages * kRecordPage;
  const uint64_t quarter = options_.segment_bytes / 4;
  const double budget =
      (options_.write_amplification_max - 1) * static_cast<double>(stats_.written_bytes);
  return !stats_.writes_off && collection_.kept_pages * kRecordPage + bytes <= quarter &&
         static_cast<double>(stats_.moved_bytes + bytes) <= budget;
}

void SegmentLog::KeepNext(std::vector<BlobEvent>* out) {
  Segment* segment = segments_.at(collection_.victim).get();
  for (; collection_.next < segment->entries.size(); ++collection_.next) {
    const Entry& entry = segment->entries[collection_.next];
    if (!entry.live() || !entry.hit()) continue;
    const uint32_t pages = PagesOf(*segment, entry);
    if (!MayKeep(pages) || !OpenFile(segment).ok()) continue;
    if (collection_.buffer.bytes() < (pages - 1) * uint64_t{kRecordPage}) {
      collection_.buffer = AlignedBuffer((pages - 1) * uint64_t{kRecordPage});
    }
    const int index = TakeOperation(Operation::Kind::kKeepRead, segment);
    Operation& operation = operations_[static_cast<size_t>(index)];
    operation.place = collection_.from = {segment->name.segment, entry.page()};
    operation.tag = entry.tag;
    operation.requests = 1;
    operation.bytes = uint64_t{pages} * kRecordPage;
    ++segment->reads;
    IoRequest request{.kind = IoRequest::Kind::kRead,
                      .fd = segment->fd,
                      .offset = uint64_t{entry.page()} * kRecordPage,
                      .part_count = 2,
                      .cookie = static_cast<uint64_t>(index)};
    request.parts[0] = {pages_.data() + static_cast<size_t>(index) * kRecordPage, kRecordPage};
    request.parts[1] = {collection_.buffer.data(), (pages - 1) * uint64_t{kRecordPage}};
    collection_.waiting = true;
    ++collection_.next;
    Send(request);
    return;
  }
  EndCollection(out);
}

void SegmentLog::FinishKeepRead(int index, Segment& segment) {
  const Operation operation = operations_[static_cast<size_t>(index)];
  --segment.reads;
  collection_.waiting = false;
  if (operation.failed || collection_.victim == 0) return;
  const absl::StatusOr<RecordHeader> header = HeaderOf(index, segment);
  if (!header.ok() || header->shape.RecordBytes() != operation.bytes) return;
  const std::span<std::byte> payload =
      collection_.buffer.span().first(header->shape.PayloadBytes());
  const BlobRead whole{.place = operation.place,
                       .shape = header->shape,
                       .first = 0,
                       .count = header->shape.blocks,
                       .sections = (1u << header->shape.sections) - 1,
                       .last = header->last(),
                       .into = payload};
  if (!VerifyRead(whole, *header).ok()) return;
  if (!StartAppend(*header, payload, operation.tag, Head::kKept).ok()) return;
  collection_.waiting = true;
  collection_.kept_pages += operation.bytes / kRecordPage;
}

void SegmentLog::FinishKeepWrite(Operation& operation, Segment& segment,
                                 std::vector<BlobEvent>* out) {
  collection_.waiting = false;
  if (operation.failed) return;
  Entry* old = collection_.victim == 0 ? nullptr : Find(collection_.from);
  if (old == nullptr || !old->live()) {  // dropped while it was copied
    WEIR_REACHED("segment log: dropped while it was kept");
    Entry* entry = Find(operation.place);
    Forget(&segment, entry);
    return;
  }
  Forget(segments_.at(collection_.from.segment).get(), old);
  out->push_back({BlobEvent::Kind::kMoved, 0, absl::OkStatus(), operation.place, collection_.from,
                  operation.tag});
}

void SegmentLog::EndCollection(std::vector<BlobEvent>* out) {
  Segment* segment = segments_.at(collection_.victim).get();
  collection_.victim = 0;
  for (Entry& entry : segment->entries) {
    if (!entry.live()) continue;
    Forget(segment, &entry);
    ++stats_.evicted;
    out->push_back({BlobEvent::Kind::kGone,
                    0,
                    absl::OkStatus(),
                    {segment->name.segment, entry.page()},
                    {},
                    entry.tag});
  }
  segment->state = Segment::State::kDying;
  MaybeRemove(segment);
}

}  // namespace weir::kv
