// SPDX-License-Identifier: Apache-2.0
//
// Between the types of the store and the messages of proto/kv.proto. Pure functions for any thread.
// What comes out of a message is hostile: every reader here checks sizes and answers kBadField.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/blob/record.h"
#include "kvstore/key/block_key.h"

namespace weir::v1 {
class Failure;
class KvShape;
}  // namespace weir::v1

namespace weir::kv {

inline constexpr uint32_t kKvProtocol = 1;
inline constexpr uint32_t kNodeRegion = 1;          // the node's host tier, in transfers
inline constexpr size_t kLookupBlocksMax = 1 << 17;  // 16 million tokens of 128

std::string BytesOfKeys(std::span<const BlockKey> keys);
absl::StatusOr<BlockKey> KeyFrom(std::string_view bytes);
absl::StatusOr<std::vector<BlockKey>> KeysFrom(std::string_view bytes);
absl::StatusOr<DomainId> DomainFrom(std::string_view bytes);
std::string BytesOfDomain(const DomainId& domain);

void ShapeTo(const RecordShape& shape, v1::KvShape* out);
// With `blocks` blocks.
absl::StatusOr<RecordShape> ShapeFrom(const v1::KvShape& shape, uint32_t blocks);

void FailureTo(const absl::Status& status, v1::Failure* out);
absl::Status StatusFrom(const v1::Failure& failure);

}  // namespace weir::kv
