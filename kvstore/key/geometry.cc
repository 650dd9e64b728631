// SPDX-License-Identifier: Apache-2.0
#include "kvstore/key/geometry.h"

#include <algorithm>
#include <bit>

namespace weir::kv {

absl::Status Geometry::Validate() const {
  if (block_tokens == 0) return Error(Reason::kBadField, "block_tokens must be positive", "block_tokens");
  if (block_bytes == 0) return Error(Reason::kBadField, "block_bytes must be positive", "block_bytes");
  if (window > 0 && window_layers == 0) {
    return Error(Reason::kBadField, "a window needs window_layers", "window_layers");
  }
  return absl::OkStatus();
}

uint32_t Geometry::RecordBlocks() const {
  const uint64_t fit = block_bytes == 0 ? 1 : kRecordBytesMax / block_bytes;
  return static_cast<uint32_t>(
      std::bit_floor(std::clamp<uint64_t>(fit, 1, kRecordBlocksMax)));
}

}  // namespace weir::kv
