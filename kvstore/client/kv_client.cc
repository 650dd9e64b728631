// SPDX-License-Identifier: Apache-2.0
#include "kvstore/client/kv_client.h"

#include "base/stdx/status.h"

namespace weir::kv {

absl::Status CheckPut(const KvPut& put, const std::function<uint64_t(uint32_t)>& bytes_of) {
  WEIR_TRY(CheckShape(put.shape));
  if (put.first > put.keys.size() || put.shape.blocks > put.keys.size() - put.first) {
    return Error(Reason::kBadField, "a put names blocks that the prompt has not", "first");
  }
  const size_t all = size_t{put.shape.blocks} * put.shape.sections;
  std::vector<bool> seen(all);
  for (const BlockPart& part : put.parts) {
    const uint32_t block = part.block - put.first;  // wraps around below the first
    if (block >= put.shape.blocks || part.section >= put.shape.sections) {
      return Error(Reason::kBadField, "a part is of a block or section that is not put", "parts");
    }
    const size_t index = size_t{part.section} * put.shape.blocks + block;
    const uint64_t bytes = put.shape.section[part.section].block_bytes;
    const uint64_t region = bytes_of(part.region);
    if (seen[index] || bytes > region || part.offset > region - bytes) {
      return Error(Reason::kBadField, "a part is given twice or lies outside of its region",
                   "parts");
    }
    seen[index] = true;
  }
  if (put.parts.size() != all) {
    return Error(Reason::kBadField, "a put lacks parts of its blocks", "parts");
  }
  return absl::OkStatus();
}

absl::Status CheckState(const KvState& state, uint64_t region_bytes) {
  if (state.bytes == 0 || state.bytes > region_bytes ||
      state.offset > region_bytes - state.bytes) {
    return Error(Reason::kBadField, "a state lies outside of its region", "offset");
  }
  return absl::OkStatus();
}

absl::Status NoStates() {
  return Error(Reason::kUnknownModel, "this store keeps no window states", "key");
}

absl::Status StateTooLong() {
  return Error(Reason::kTooLong, "the window state is longer than the memory for it", "bytes");
}

}  // namespace weir::kv
