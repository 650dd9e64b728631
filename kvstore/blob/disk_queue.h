// SPDX-License-Identifier: Apache-2.0
//
// DiskQueue: requests to open files, and their results later. Owned by its directory's thread; owns
// no descriptor and no buffer. kPlain does one request per Poll, in order, and blocks for it; the
// ring never blocks unless asked to. Making a ring fails where the kernel forbids io_uring.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/blob/directory.h"

namespace weir::kv {

class DiskQueue {
 public:
  virtual ~DiskQueue() = default;
  virtual bool Submit(const IoRequest& request) = 0;
  virtual void Poll(IoWait wait, std::vector<IoResult>* out) = 0;
};

absl::StatusOr<std::unique_ptr<DiskQueue>> MakeRingQueue(uint32_t depth);
std::unique_ptr<DiskQueue> MakePlainQueue(uint32_t depth);

}  // namespace weir::kv
