// SPDX-License-Identifier: Apache-2.0
//
// Transfer: reads pages of other instances into this instance's own pages, in the Post/Poll idiom.
// One thread owns a Transfer (an engine's step thread) and makes every call; none of them blocks.
// The arenas given to AddRegion stay the caller's and must outlive the Transfer; peers may read them
// from AddRegion on, and nobody but this Transfer's own reads ever writes them.
// A read fails with kPeerLost, kCorrupt, kCancelled, kDeadline or, where the owner of the memory
// refused it, kBadField; a full Transfer answers kQueueFull. Every accepted Post completes once.
//
// Hand-over is driven by the receiver: the owner of finished pages offers them in a control message
// and keeps them unchanged under a lease; the receiver posts reads. So no remote process can write
// into our memory, and pages are free for another use as soon as our own read of them has completed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stdx/ids.h"
#include "base/stdx/strong.h"

namespace weir::kv {

class Arena;

using TransferId = Strong<struct TransferIdTag, uint64_t>;  // from 1; never reused by one Transfer

// Which reads go first where both wait. Strict order: a later class moves only while none of an
// earlier one waits, so the caller bounds what it posts of the earlier ones.
enum class Traffic : uint8_t {
  kHandover = 0,    // a request waits for these pages to decode
  kHit = 1,         // a prefix loaded in place of computing it
  kBackground = 2,  // migration ahead of need
};
inline constexpr int kTrafficCount = 3;

// One contiguous read: `bytes` from a region of instance `from` into a region of ours.
struct CopyOp {
  InstanceId from;
  uint32_t remote_region = 0;
  uint64_t remote_offset = 0;
  uint32_t local_region = 0;
  uint64_t local_offset = 0;
  uint32_t bytes = 0;   // > 0
  uint32_t crc32c = 0;  // of the bytes, checked after they landed; 0 = unchecked
};

struct Completion {
  TransferId id;
  absl::Status status;  // the first failure of any of its ops
};

// What one Transfer will hold at most. The defaults are our protection, not a tuning knob.
struct TransferLimits {
  uint32_t regions_max = 64;
  uint32_t remotes_max = 1024;
  uint32_t transfers_max = 4096;     // outstanding
  uint32_t ops_max = 65536;          // outstanding, over all transfers
  uint32_t ops_per_post_max = 8192;
  uint32_t op_bytes_max = 1u << 30;
};

struct TransferOptions {
  InstanceId self;
  TransferLimits limits;
  // Called after completions became visible to Poll, from any thread, also from within Post, Cancel
  // and RemoveRemote. It must neither block nor call into the Transfer: it only wakes the owner.
  std::function<void()> wake;
};

// Sums since creation.
struct TransferStats {
  uint64_t bytes_shm = 0;  // landed, by the way they came
  uint64_t bytes_ucx = 0;
  uint64_t bytes_mem = 0;
  uint64_t posted = 0;     // transfers
  uint64_t completed = 0;  // with OK
  uint64_t failed = 0;
  uint32_t outstanding = 0;
};

class Transfer {
 public:
  virtual ~Transfer() = default;

  // Registers memory under an id that is unique within this instance. Refuses a second use of the
  // id. Regions live as long as the Transfer.
  virtual absl::Status AddRegion(uint32_t region, Arena* arena) = 0;

  // What a peer needs to read our regions: opaque bytes for the Hello message, one entry per region
  // and way to reach it.
  virtual std::vector<std::string> Descriptors() const = 0;

  // Makes a peer's regions readable from its Descriptors, which are untrusted bytes. A peer is one
  // life of one process: adding the same one again with equal descriptors is a no-op, with other
  // descriptors an error. OK says that the descriptors are usable, not that the peer is alive.
  virtual absl::Status AddRemote(InstanceId peer, std::span<const std::string> descriptors) = 0;

  // Forgets a peer. Reads from it that have not completed fail with kPeerLost, each once nothing can
  // write into its destination any more. Unknown peers are ignored.
  virtual void RemoveRemote(InstanceId peer) = 0;

  // Starts reads that complete together. Refused as a whole, with nothing started: kQueueFull over a
  // limit, kPeerLost for an unknown peer, kBadField for an op outside of its regions.
  [[nodiscard]] virtual absl::StatusOr<TransferId> Post(std::span<const CopyOp> ops,
                                                        Traffic traffic) = 0;

  // Appends what has completed since the last call. After a completion, whatever its status, no
  // write into the transfer's destinations happens any more.
  virtual void Poll(std::vector<Completion>* out) = 0;

  // Gives up on a transfer. Its completion still comes, kCancelled unless it failed before. Unknown
  // and completed ids are ignored.
  virtual void Cancel(TransferId id) = 0;

  virtual TransferStats Stats() const = 0;
};

}  // namespace weir::kv
