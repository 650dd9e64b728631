// SPDX-License-Identifier: Apache-2.0
#include "kvstore/client/kv_wire.h"

#include <cstring>

#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "proto/kv.pb.h"

namespace weir::kv {
namespace {

constexpr size_t kKeyBytes = sizeof(BlockKey::bytes);

}  // namespace

std::string BytesOfKeys(std::span<const BlockKey> keys) {
  std::string bytes(keys.size() * kKeyBytes, '\0');
  for (size_t i = 0; i < keys.size(); ++i)
    std::memcpy(bytes.data() + i * kKeyBytes, keys[i].bytes.data(), kKeyBytes);
  return bytes;
}

absl::StatusOr<BlockKey> KeyFrom(std::string_view bytes) {
  if (bytes.size() != kKeyBytes) return Error(Reason::kBadField, "a key has 32 bytes", "root");
  return LoadAs<BlockKey>(bytes.data());
}

absl::StatusOr<std::vector<BlockKey>> KeysFrom(std::string_view bytes) {
  if (bytes.size() % kKeyBytes != 0 || bytes.size() / kKeyBytes > kLookupBlocksMax) {
    return Error(Reason::kBadField, "keys have 32 bytes each, and there is a limit to them",
                 "keys");
  }
  std::vector<BlockKey> keys(bytes.size() / kKeyBytes);
  for (size_t i = 0; i < keys.size(); ++i)
    std::memcpy(keys[i].bytes.data(), bytes.data() + i * kKeyBytes, kKeyBytes);
  return keys;
}

absl::StatusOr<DomainId> DomainFrom(std::string_view bytes) {
  if (bytes.size() != sizeof(DomainId)) {
    return Error(Reason::kBadField, "a domain has 16 bytes", "domain");
  }
  return LoadAs<DomainId>(bytes.data());
}

std::string BytesOfDomain(const DomainId& domain) {
  return {reinterpret_cast<const char*>(domain.data()), domain.size()};
}

void ShapeTo(const RecordShape& shape, v1::KvShape* out) {
  for (uint32_t i = 0; i < shape.sections; ++i) {
    out->add_ids(shape.section[i].id);
    out->add_block_bytes(shape.section[i].block_bytes);
  }
}

absl::StatusOr<RecordShape> ShapeFrom(const v1::KvShape& shape, uint32_t blocks) {
  const int sections = shape.ids_size();
  if (sections > static_cast<int>(kRecordSectionsMax) || shape.block_bytes_size() != sections) {
    return Error(Reason::kBadField, "a shape has 1 to 12 sections, each with its size", "shape");
  }
  RecordShape out;
  out.blocks = blocks;
  out.sections = static_cast<uint32_t>(sections);
  for (int i = 0; i < sections; ++i)
    out.section[static_cast<size_t>(i)] = {shape.ids(i), shape.block_bytes(i)};
  WEIR_TRY(CheckShape(out));
  return out;
}

void FailureTo(const absl::Status& status, v1::Failure* out) {
  out->set_reason(static_cast<uint32_t>(ReasonOf(status)));
  out->set_message(std::string(StdView(status.message())));
  out->set_param(ParamOf(status));
}

absl::Status StatusFrom(const v1::Failure& failure) {
  return Error(ReasonFromNumber(failure.reason()), failure.message(), failure.param());
}

}  // namespace weir::kv
