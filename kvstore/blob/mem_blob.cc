// SPDX-License-Identifier: Apache-2.0
#include "kvstore/blob/mem_blob.h"

#include <cstring>
#include <utility>

#include "base/stdx/status.h"

namespace weir::kv {

absl::StatusOr<BlobId> MemBlob::Append(const RecordHeader& header,
                                       std::span<const std::byte> payload, BlobTag tag) {
  WEIR_TRY(CheckShape(header.shape));
  const uint64_t bytes = header.shape.RecordBytes();
  if (payload.size() != header.shape.PayloadBytes()) {
    return Error(Reason::kBadField, "a payload has another size than its shape", "payload");
  }
  if (bytes > capacity_bytes_) {
    ++stats_.appends_refused;
    return Error(Reason::kNoCapacity, "the store is smaller than the record");
  }
  while (stats_.held_bytes + bytes > capacity_bytes_) {
    const uint32_t oldest = order_.front();
    order_.pop_front();
    const auto found = records_.find(oldest);
    if (found == records_.end()) continue;
    ++stats_.evicted;
    events_.push_back(
        {BlobEvent::Kind::kGone, 0, absl::OkStatus(), {oldest, 0}, {}, found->second.tag});
    Forget(oldest);
  }
  const Place place{++last_number_, 0};
  records_[place.segment] = {header, {payload.begin(), payload.end()}, tag};
  order_.push_back(place.segment);
  stats_.held_bytes += bytes;
  stats_.live_bytes += bytes;
  stats_.written_bytes += bytes;
  ++stats_.records;
  events_.push_back({BlobEvent::Kind::kAppended, ++last_id_, absl::OkStatus(), place, {}, tag});
  return last_id_;
}

absl::StatusOr<BlobId> MemBlob::Read(const BlobRead& read) {
  WEIR_TRY(CheckRead(read));
  const auto found = records_.find(read.place.segment);
  if (found == records_.end()) {
    return Error(Reason::kUnknownModel, "there is no record at this place", "place");
  }
  events_.push_back(
      {BlobEvent::Kind::kRead, ++last_id_, Copy(read), read.place, {}, found->second.tag});
  return last_id_;
}

absl::Status MemBlob::Copy(const BlobRead& read) {
  const Record& record = records_.at(read.place.segment);
  if (!(record.header.shape == read.shape)) {
    return Error(Reason::kUnknownModel, "the record at this place has another size", "place");
  }
  const ReadPlan plan = PlanRead(read.shape, read.first, read.count, read.sections);
  for (uint32_t i = 0; i < plan.part_count; ++i) {
    const ReadPlan::Part& part = plan.parts[i];
    std::memcpy(read.into.data() + part.buffer_at, record.payload.data() + part.payload_at,
                part.bytes);
  }
  stats_.read_bytes += plan.bytes;
  if (read.header != nullptr) *read.header = record.header;
  return VerifyRead(read, record.header);
}

void MemBlob::Poll(IoWait, std::vector<BlobEvent>* out) {
  for (BlobEvent& event : events_) out->push_back(std::move(event));
  events_.clear();
}

void MemBlob::Drop(Place place) { Forget(place.segment); }

void MemBlob::Forget(uint32_t number) {
  const auto found = records_.find(number);
  if (found == records_.end()) return;
  const uint64_t bytes = found->second.header.shape.RecordBytes();
  stats_.held_bytes -= bytes;
  stats_.live_bytes -= bytes;
  --stats_.records;
  records_.erase(found);
}

absl::Status MemBlob::EraseDomain(const DomainId& domain) {
  std::vector<uint32_t> gone;
  for (const auto& [number, record] : records_) {
    if (record.header.domain == domain) gone.push_back(number);
  }
  for (const uint32_t number : gone) Forget(number);
  return absl::OkStatus();
}

}  // namespace weir::kv
