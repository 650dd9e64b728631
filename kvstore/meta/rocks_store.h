// SPDX-License-Identifier: Apache-2.0
//
// An OrderedStore in a RocksDB of one folder. See OrderedStore for what may block; the folder is
// locked by RocksDB, so one process has it. What RocksDB reports comes back as a status: a damaged
// folder as kCorrupt, one in use or a full disk as kNoCapacity. Nothing is repaired behind the
// caller's back.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvstore/meta/ordered_store.h"

namespace weir::kv {

absl::StatusOr<std::unique_ptr<OrderedStore>> OpenRocksStore(const std::string& path);

}  // namespace weir::kv
