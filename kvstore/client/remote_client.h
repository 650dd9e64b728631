// SPDX-License-Identifier: Apache-2.0
//
// RemoteClient: the KvClient of a store in another process of this host (`weir kvstore`). Owned by
// one thread, see KvClient; the channel's thread only queues messages, the transfer's copies and
// compares checksums. It owns channel and transfer. A node that dies, stops or is replaced fails
// what is under way with kPeerLost and is dialled anew; what it had in memory is then a miss.
//
// The node's lease is counted here from before the request was sent, so it ends here first. Should
// the node be late or the clock wrong, the checksum finds what was overwritten meanwhile.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/net/channel.h"
#include "base/stdx/bounded_queue.h"
#include "kvstore/client/kv_client.h"
#include "kvstore/transfer/lease.h"
#include "kvstore/transfer/transfer.h"

namespace weir::v1 {
class KvFound;
class KvMessage;
class KvStretch;
}  // namespace weir::v1

namespace weir::kv {

struct RemoteClientOptions {
  std::string address;  // of the node: "unix:PATH" or "host:port"
  std::string name;     // for people
  ChannelFactory make_channel;
  // Called after something became visible to Poll, from any thread; it only wakes the owner.
  std::function<void()> wake;
};

class RemoteClient final : public KvClient, private Channel::Handler {
 public:
  static absl::StatusOr<std::unique_ptr<RemoteClient>> Create(RemoteClientOptions options);
  ~RemoteClient() override;

  absl::Status AddRegion(uint32_t region, Arena* arena) override;
  absl::StatusOr<KvOpId> Lookup(Instant now, const BlockKey& root, std::span<const BlockKey> keys,
                                bool exact, const RecordShape& shape) override;
  absl::StatusOr<KvOpId> Load(Instant now, KvOpId lookup, std::span<const BlockPart> parts,
                              Instant deadline) override;
  void Release(KvOpId lookup) override;
  absl::StatusOr<KvOpId> Put(Instant now, const KvPut& put, Instant deadline) override;
  absl::StatusOr<KvOpId> PutState(Instant now, const KvState& state, Instant deadline) override;
  absl::StatusOr<KvOpId> LoadState(Instant now, const KvState& into, Instant deadline) override;
  absl::StatusOr<KvOpId> EraseDomain(Instant now, const DomainId& domain,
                                     Instant deadline) override;
  void Poll(Instant now, std::vector<KvOutcome>* out) override;
  Instant NextDeadline() const override { return deadlines_.NextDeadline(); }
  bool up() const override { return node_ != InstanceId(); }

 private:
  struct Item {
    uint32_t link = 0;
    std::string bytes;
  };
  struct Stretch {
    enum class State : uint8_t { kOnDisk, kFetching, kInHost } state = State::kOnDisk;
    uint32_t at = 0;
    uint32_t count = 0;
    bool approx = false;
    bool fetched = false;          // held by the node until it is released
    uint32_t copies = 0;           // under way
    std::vector<uint64_t> places;  // of each section's first block, in the node's region
    std::vector<uint32_t> crcs;    // of each block's part, section after section
  };
  struct Found {
    RecordShape shape;
    size_t keys = 0;
    std::vector<Stretch> stretches;  // empty until the node answered
    Instant until{};
    uint32_t loads = 0;    // under way
    uint32_t fetches = 0;  // under way
    bool released = false;
  };
  // One stretch's part of a load.
  struct Piece {
    enum class State : uint8_t { kWaiting, kCopying, kEnded } state = State::kWaiting;
    uint32_t stretch = 0;
    std::vector<BlockPart> parts;
  };
  struct Operation {
    enum class Kind : uint8_t { kLookup, kLoad, kPut, kState, kErase } kind = Kind::kLookup;
    KvOpId lookup;  // of a load
    std::vector<Piece> pieces;
    uint32_t copies = 0;  // under way
    absl::Status status;  // the first failure
    KvState into;         // of a state's load
  };
  struct Copying {
    KvOpId load;
    KvOpId lookup;
    uint32_t stretch = 0;
  };

  explicit RemoteClient(RemoteClientOptions options);

  void OnUp(PeerId peer, std::string_view address) override;
  void OnDown(PeerId peer, const absl::Status& why) override;
  bool OnMessage(PeerId peer, std::string&& bytes) override;

  absl::StatusOr<KvOpId> Start(Operation operation, Instant deadline);
  bool Send(const v1::KvMessage& message);
  void FollowLink();
  void TakeMessage(const v1::KvMessage& message);
  void TakeHello(const v1::KvMessage& message);
  void TakeFound(const v1::KvFound& found);
  void TakeFetched(const v1::KvMessage& message);
  void TakeDone(const v1::KvMessage& message);
  void TakeState(const v1::KvMessage& message);
  absl::Status ReadStretch(const v1::KvStretch& from, const Found& found, Stretch* to) const;
  // Moves a load on: asks for stretches, copies those that are in the node's memory.
  void Advance(KvOpId load);
  void AdvanceAll(KvOpId lookup);
  void AskFor(KvOpId lookup, uint32_t stretch);
  void Copy(KvOpId load, Operation* operation, Piece* piece);
  void EndCopy(const Completion& done);
  void ReleaseStretch(KvOpId lookup, uint32_t stretch);
  // The operation ends with `status` once nothing of it is under way.
  void Fail(KvOpId id, const absl::Status& status);
  void MaybeEnd(KvOpId id);
  void Forget(KvOpId lookup);
  void LoseNode();

  // Constant after Create.
  const RemoteClientOptions options_;
  const InstanceId self_;
  std::unique_ptr<Transfer> transfer_;
  std::unique_ptr<Channel> channel_;
  PeerId peer_;

  // Between the channel's thread and the owner's: odd while the link stands, and what came over it.
  std::atomic<uint32_t> link_{0};
  BoundedQueue<Item> inbox_;

  // Owned by the owner's thread.
  uint32_t link_seen_ = 0;
  InstanceId node_;  // unset while there is none
  Duration lease_{0};
  uint64_t last_id_ = 0;
  std::map<uint32_t, Arena*> regions_;
  std::map<KvOpId, Operation> operations_;
  absl::flat_hash_map<KvOpId, Found> lookups_;
  absl::flat_hash_map<uint64_t, std::pair<KvOpId, uint32_t>> fetches_;  // lookup and stretch
  absl::flat_hash_map<TransferId, Copying> copies_;
  LeaseTable<KvOpId> deadlines_;
  std::vector<KvOutcome> outcomes_;
  std::vector<Item> items_;
  std::vector<Completion> completions_;
};

}  // namespace weir::kv
