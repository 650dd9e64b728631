// SPDX-License-Identifier: Apache-2.0
//
// Carrier: one way of reading a peer's memory (in-process, shared memory, network), beneath a
// RouteTransfer that does the bookkeeping. The Transfer's owning thread makes every call and none
// blocks; a carrier may do the work on a thread of its own, with bounded queues between. Arenas are
// borrowed and outlive the carrier. Every started op is reported done exactly once, and only when
// nothing can write to its destination any more; failures are in its status.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stdx/bounded_queue.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "base/stdx/status.h"
#include "kvstore/transfer/arena.h"
#include "kvstore/transfer/region_descriptor.h"
#include "kvstore/transfer/transfer.h"

namespace weir::kv {

// A peer as carriers know it: one AddRemote. Not reused, so that what is left of a removed peer
// cannot be taken for the same peer added again.
using RemoteHandle = uint32_t;

struct CarrierOp {
  uint64_t transfer = 0;
  RemoteHandle remote = 0;
  uint32_t region = 0;
  uint64_t offset = 0;  // in the remote region; checked against its described size
  std::byte* to = nullptr;
  uint32_t bytes = 0;
  uint32_t crc32c = 0;
  Traffic traffic = Traffic::kHandover;
};

struct CarrierDone {
  uint64_t transfer = 0;
  uint32_t bytes = 0;
  absl::Status status;
};

// What carriers may count on: the owner never has more than this under way.
struct CarrierLimits {
  uint32_t ops_max = 0;
  uint32_t transfers_max = 0;
  uint32_t remotes_max = 0;
  uint32_t regions_max = 0;
};

class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual RegionKind kind() const = 0;
  // Before any other call, once. `wake` may be called from any thread after an op is done.
  virtual void Start(const CarrierLimits& limits, std::function<void()> wake) = 0;
  virtual absl::Status AddRegion(uint32_t region, Arena* arena) = 0;
  // Empty when this carrier cannot show that region to peers.
  virtual std::string Describe(uint32_t region) const = 0;
  virtual absl::Status Attach(RemoteHandle remote, const RegionDescriptor& descriptor) = 0;
  // Ops of this peer that are not done end with kPeerLost.
  virtual void Detach(RemoteHandle remote) = 0;
  virtual void Read(CarrierOp op) = 0;
  // Ops of this transfer that are not done end with kCancelled as soon as that is safe.
  virtual void Cancel(uint64_t transfer) = 0;
  virtual void Collect(std::vector<CarrierDone>* out) = 0;
};

// The way back from a carrier's thread. Wakes once for any number of results not yet collected.
class DoneQueue {
 public:
  DoneQueue(size_t capacity, std::function<void()> wake)
      : queue_(capacity), wake_(std::move(wake)) {}

  void Push(CarrierDone done) {
    // Sized for every op that may be under way; an overflow would lose a completion.
    WEIR_CHECK(queue_.TryPush(std::move(done)));
    if (!woken_.exchange(true) && wake_) wake_();
  }

  void Collect(std::vector<CarrierDone>* out) {
    woken_.store(false);
    queue_.PopSome(SIZE_MAX, out);
  }

 private:
  BoundedQueue<CarrierDone> queue_;
  const std::function<void()> wake_;
  std::atomic<bool> woken_{false};
};

// The verdict on landed bytes.
inline absl::Status CheckLanded(std::span<const std::byte> bytes, uint32_t crc32c) {
  if (crc32c == 0 || Crc32c(bytes) == crc32c) return absl::OkStatus();
  WEIR_REACHED("transfer: checksum of landed bytes differs");
  return Error(Reason::kCorrupt, "the bytes that landed have another checksum", "crc32c");
}

}  // namespace weir::kv
