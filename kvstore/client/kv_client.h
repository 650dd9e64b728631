// SPDX-License-Identifier: Apache-2.0
//
// KvClient: what an engine asks of the store of its host, which lives in its own process
// (node/embedded_client) or in another (remote_client); both pass one suite. Owned by one thread,
// which makes every call; none waits, outcomes come out of Poll, and every accepted operation ends
// once, by its deadline. The arenas that pages lie in are the caller's, and outlive the client.
// A miss is always legal and a wrong byte never comes out: each part of a block is compared with
// its checksum after it has landed. A store that is away answers kPeerLost, and is there again
// later.
//
// The order of things: Lookup says what there is; Load brings blocks of it into pages; Release lets
// the store forget the lookup. What a lookup found stays for a lease; after it a Load fails or
// brings the right bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/runtime/time.h"
#include "base/stdx/strong.h"
#include "kvstore/blob/record.h"
#include "kvstore/hit/hit_plan.h"
#include "kvstore/key/block_key.h"

namespace weir::kv {

class Arena;

using KvOpId = Strong<struct KvOpIdTag, uint64_t>;  // from 1; never reused by one client

// Where one section's part of one block lies in the caller's memory.
struct BlockPart {
  uint32_t block = 0;    // of the prompt
  uint32_t section = 0;  // index into the shape
  uint32_t region = 0;
  uint64_t offset = 0;
};

struct KvPut {
  BlockKey root;
  std::span<const BlockKey> keys;  // of the prompt, at least up to the end of these blocks
  uint32_t first = 0;
  DomainId domain{};
  Sha256Digest schema{};
  bool approx = false;           // computed behind a bounded replay
  RecordShape shape;             // of these blocks
  std::vector<BlockPart> parts;  // of each block and section exactly one
};

struct KvFoundRun {
  uint32_t at = 0;  // block of the prompt
  uint32_t count = 0;
  Tier tier = Tier::kHost;
  bool approx = false;
};

// A window state at the end of a turn, under the key of the tokens before it. Only the memory of a
// host keeps these, in slots that are overwritten in turn, for minutes.
struct KvState {
  BlockKey key;
  DomainId domain{};
  Position position = 0;
  uint32_t region = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;  // of a load: at most so many
};

struct KvOutcome {
  KvOpId id;
  absl::Status status;
  uint32_t blocks = 0;           // of a lookup: the longest prefix that is there
  std::vector<KvFoundRun> runs;  // and where, without gaps
  Position position = 0;         // of a loaded state
  uint32_t bytes = 0;
};

// What a client will hold at most; more is kQueueFull.
inline constexpr size_t kKvOperationsMax = 1024;  // under way
inline constexpr size_t kKvLookupsMax = 256;      // not released

class KvClient {
 public:
  virtual ~KvClient() = default;

  // Memory that parts may lie in, under an id that is unique within this client.
  virtual absl::Status AddRegion(uint32_t region, Arena* arena) = 0;

  // The longest prefix of `keys` that is there; `shape` tells the sections, its block count does
  // not matter. `exact`: without what was computed behind a bounded replay.
  virtual absl::StatusOr<KvOpId> Lookup(Instant now, const BlockKey& root,
                                        std::span<const BlockKey> keys, bool exact,
                                        const RecordShape& shape) = 0;
  // Brings parts of what a lookup found into the caller's pages. After the outcome nothing writes
  // into them any more; unless it is OK what they hold is undefined.
  virtual absl::StatusOr<KvOpId> Load(Instant now, KvOpId lookup, std::span<const BlockPart> parts,
                                      Instant deadline) = 0;
  // Nothing more will be loaded from a lookup. Loads under way go on.
  virtual void Release(KvOpId lookup) = 0;

  // Keeps blocks. Their pages are to stay unchanged until the outcome; OK also where the blocks
  // were there before.
  virtual absl::StatusOr<KvOpId> Put(Instant now, const KvPut& put, Instant deadline) = 0;
  virtual absl::StatusOr<KvOpId> PutState(Instant now, const KvState& state, Instant deadline) = 0;
  // kUnknownModel when there is none, kLeaseExpired when it is too old, kTooLong when it does not
  // fit.
  virtual absl::StatusOr<KvOpId> LoadState(Instant now, const KvState& into, Instant deadline) = 0;
  // When the outcome is OK no block or state of the domain that was put before can be found again,
  // not even after a crash.
  virtual absl::StatusOr<KvOpId> EraseDomain(Instant now, const DomainId& domain,
                                             Instant deadline) = 0;

  // Appends the outcomes since the last call; to be called after a wake and by NextDeadline.
  virtual void Poll(Instant now, std::vector<KvOutcome>* out) = 0;
  virtual Instant NextDeadline() const = 0;
  // Whether the store answers.
  virtual bool up() const = 0;
};

// Whether the parts name each block and section of the put exactly once and pages inside of
// regions, whose sizes `bytes_of` tells (0: none): kBadField.
absl::Status CheckPut(const KvPut& put, const std::function<uint64_t(uint32_t)>& bytes_of);
// As above, for a state in a region of so many bytes.
absl::Status CheckState(const KvState& state, uint64_t region_bytes);
// Of a store without a window ring, and of a state that is longer than the memory for it.
absl::Status NoStates();
absl::Status StateTooLong();

}  // namespace weir::kv
