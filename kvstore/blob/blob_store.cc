// SPDX-License-Identifier: Apache-2.0
#include "kvstore/blob/blob_store.h"

#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "base/stdx/status.h"

namespace weir::kv {

ReadPlan PlanRead(const RecordShape& shape, uint32_t first, uint32_t count, uint32_t sections) {
  ReadPlan plan;
  for (uint32_t i = 0; i < shape.sections; ++i) {
    if ((sections >> i & 1) == 0) continue;
    const uint64_t begin = shape.BlockAt(i, first);
    const uint64_t end = shape.BlockAt(i, first + count);
    ReadPlan::Part& part = plan.parts[plan.part_count++];
    part.section = i;
    part.payload_at = AlignDown<uint64_t>(begin, kRecordPage);
    part.bytes = AlignUp<uint64_t>(end, kRecordPage) - part.payload_at;
    part.buffer_at = plan.bytes;
    part.view_at = plan.bytes + (begin - part.payload_at);
    plan.bytes += part.bytes;
  }
  return plan;
}

absl::Status CheckRead(const BlobRead& read) {
  WEIR_TRY(CheckShape(read.shape));
  if (read.count == 0 || read.first >= read.shape.blocks ||
      read.count > read.shape.blocks - read.first) {
    return Error(Reason::kBadField, "a read asks for blocks that its record has not", "count");
  }
  if (read.sections == 0 || read.sections >> read.shape.sections != 0) {
    return Error(Reason::kBadField, "a read asks for sections that its record has not", "sections");
  }
  const ReadPlan plan = PlanRead(read.shape, read.first, read.count, read.sections);
  if (read.into.size() < plan.bytes ||
      reinterpret_cast<uintptr_t>(read.into.data()) % kRecordPage != 0) {
    return Error(Reason::kBadField, "a read's buffer is too small or not aligned to a page",
                 "into");
  }
  return absl::OkStatus();
}

absl::Status VerifyRead(const BlobRead& read, const RecordHeader& header) {
  const uint32_t at = std::min(read.last_at, read.first + read.count - 1);
  const bool meant = header.shape == read.shape && header.keys[at] == read.last;
  if (!meant && !IsPlanted(Planted::kServeUnchecked)) {
    WEIR_REACHED("blob: another record than the index promised");
    return Error(Reason::kUnknownModel, "the record is another one than the index promised",
                 "last");
  }
  if (read.exact && header.approx) {
    return Error(Reason::kUnknownModel, "the record was computed behind a bounded replay", "exact");
  }
  const ReadPlan plan = PlanRead(read.shape, read.first, read.count, read.sections);
  for (uint32_t i = 0; i < plan.part_count; ++i) {
    const ReadPlan::Part& part = plan.parts[i];
    const uint32_t block_bytes = read.shape.section[part.section].block_bytes;
    for (uint32_t j = 0; j < read.count; ++j) {
      WEIR_TRY(
          CheckBlock(header, part.section, read.first + j,
                     read.into.subspan(part.view_at + uint64_t{j} * block_bytes, block_bytes)));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::kv
