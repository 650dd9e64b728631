// SPDX-License-Identifier: Apache-2.0
#include "kvstore/client/remote_client.h"

#include <algorithm>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "kvstore/client/kv_wire.h"
#include "kvstore/transfer/route_transfer.h"
#include "kvstore/transfer/shm_carrier.h"
#include "proto/kv.pb.h"

namespace weir::kv {
namespace {

constexpr size_t kInboxMax = 4096;
constexpr uint32_t kFetchesMax = 4;  // of one lookup at once: the node's memory is not ours alone
constexpr size_t kDeadlinesMax = kKvOperationsMax;

uint32_t MillisUntil(Instant now, Instant deadline) {
  const Duration left = std::min<Duration>(deadline - now, std::chrono::hours(1));
  return static_cast<uint32_t>(left / Millis(1));
}

absl::Status Away() { return Error(Reason::kPeerLost, "the store of this host does not answer"); }
absl::Status Refused(std::string_view why) { return Error(Reason::kBadField, why, "lookup"); }

}  // namespace

RemoteClient::RemoteClient(RemoteClientOptions options)
    : options_(std::move(options)),
      self_(LoadAs<uint64_t>(MakeRegionToken().data()) | 1),
      inbox_(kInboxMax),
      deadlines_(kDeadlinesMax) {
  std::vector<std::unique_ptr<Carrier>> carriers;
  carriers.push_back(MakeShmCarrier());
  transfer_ = std::make_unique<RouteTransfer>(
      TransferOptions{.self = self_, .wake = options_.wake}, std::move(carriers));
}

absl::StatusOr<std::unique_ptr<RemoteClient>> RemoteClient::Create(RemoteClientOptions options) {
  std::unique_ptr<RemoteClient> client(new RemoteClient(std::move(options)));
  Channel::Options channel;
  channel.heartbeat = Millis(200);
  channel.dead_after = Millis(2000);  // a node that erases a domain waits for its disk
  WEIR_ASSIGN(client->channel_, client->options_.make_channel(std::move(channel), client.get()));
  client->peer_ = client->channel_->Dial(client->options_.address);
  return client;
}

RemoteClient::~RemoteClient() {
  if (channel_) channel_->Shutdown();
}

void RemoteClient::OnUp(PeerId, std::string_view) {
  link_.fetch_add(1);
  if (options_.wake) options_.wake();
}

void RemoteClient::OnDown(PeerId, const absl::Status&) {
  if (link_.load() % 2 == 1) link_.fetch_add(1);
  if (options_.wake) options_.wake();
}

bool RemoteClient::OnMessage(PeerId, std::string&& bytes) {
  Item item{link_.load(), std::move(bytes)};
  if (!inbox_.TryPush(std::move(item))) {
    bytes = std::move(item.bytes);
    return false;
  }
  if (options_.wake) options_.wake();
  return true;
}

absl::Status RemoteClient::AddRegion(uint32_t region, Arena* arena) {
  WEIR_TRY(transfer_->AddRegion(region, arena));
  regions_[region] = arena;
  return absl::OkStatus();
}

absl::StatusOr<KvOpId> RemoteClient::Start(Operation operation, Instant deadline) {
  if (!up()) return Away();
  if (operations_.size() >= kKvOperationsMax) {
    return Error(Reason::kQueueFull, "too many operations of the store are under way");
  }
  const KvOpId id(++last_id_);
  WEIR_CHECK(deadlines_.Grant(id, deadline));
  operations_.emplace(id, std::move(operation));
  return id;
}

bool RemoteClient::Send(const v1::KvMessage& message) {
  return channel_->Send(peer_, message.SerializeAsString());
}

absl::StatusOr<KvOpId> RemoteClient::Lookup(Instant now, const BlockKey& root,
                                            std::span<const BlockKey> keys, bool exact,
                                            const RecordShape& shape) {
  if (keys.size() > kLookupBlocksMax) return Refused("a lookup names too many blocks");
  if (lookups_.size() >= kKvLookupsMax) {
    return Error(Reason::kQueueFull, "too many lookups are not released");
  }
  WEIR_ASSIGN(const KvOpId id, Start({.kind = Operation::Kind::kLookup}, now + lease_));
  v1::KvMessage message;
  v1::KvLookup* lookup = message.mutable_lookup();
  lookup->set_id(id.value);
  lookup->set_root(BytesOfKeys({&root, 1}));
  lookup->set_keys(BytesOfKeys(keys));
  lookup->set_exact(exact);
  ShapeTo(shape, lookup->mutable_shape());
  Found& found = lookups_[id];
  found.shape = shape;
  found.keys = keys.size();
  found.until = now + lease_;
  if (!Send(message)) Fail(id, Away());
  return id;
}

absl::StatusOr<KvOpId> RemoteClient::Load(Instant now, KvOpId lookup,
                                          std::span<const BlockPart> parts, Instant deadline) {
  const auto found = lookups_.find(lookup);
  if (found == lookups_.end() || found->second.released)
    return Refused("there is no such lookup (any more)");
  if (now >= found->second.until)
    return Error(Reason::kLeaseExpired, "the lookup's lease is over", "lookup");
  Operation load{.kind = Operation::Kind::kLoad, .lookup = lookup};
  const std::vector<Stretch>& stretches = found->second.stretches;
  absl::flat_hash_map<uint32_t, size_t> piece_of;
  for (const BlockPart& part : parts) {
    const auto after = std::upper_bound(
        stretches.begin(), stretches.end(), part.block,
        [](uint32_t block, const Stretch& stretch) { return block < stretch.at; });
    if (after == stretches.begin() || part.block >= (after - 1)->at + (after - 1)->count ||
        part.section >= found->second.shape.sections)
      return Refused("a load asks for what the lookup has not found");
    const auto stretch = static_cast<uint32_t>(after - 1 - stretches.begin());
    const auto [piece, fresh] = piece_of.try_emplace(stretch, load.pieces.size());
    if (fresh) load.pieces.push_back({.stretch = stretch});
    load.pieces[piece->second].parts.push_back(part);
  }
  WEIR_ASSIGN(const KvOpId id,
              Start(std::move(load), std::min(deadline, found->second.until)));
  ++found->second.loads;
  Advance(id);
  return id;
}

void RemoteClient::Release(KvOpId lookup) {
  const auto found = lookups_.find(lookup);
  if (found == lookups_.end() || found->second.released) return;
  found->second.released = true;
  if (found->second.loads == 0 && !operations_.contains(lookup)) Forget(lookup);
}

void RemoteClient::Forget(KvOpId lookup) {
  lookups_.erase(lookup);
  v1::KvMessage message;
  message.mutable_release()->set_lookup(lookup.value);
  (void)Send(message);  // where it cannot be said, the lease ends it
}

absl::StatusOr<KvOpId> RemoteClient::Put(Instant now, const KvPut& put, Instant deadline) {
  WEIR_TRY(CheckPut(put, [&](uint32_t region) {
    const auto found = regions_.find(region);
    return found == regions_.end() ? 0 : found->second->bytes();
  }));
  if (deadline <= now) return Error(Reason::kDeadline, "a put's deadline is over", "deadline");
  WEIR_ASSIGN(const KvOpId id, Start({.kind = Operation::Kind::kPut}, deadline));
  v1::KvMessage message;
  v1::KvPut* out = message.mutable_put();
  out->set_id(id.value);
  out->set_root(BytesOfKeys({&put.root, 1}));
  out->set_keys(BytesOfKeys(put.keys.first(put.first + put.shape.blocks)));
  out->set_first(put.first);
  out->set_domain(BytesOfDomain(put.domain));
  out->set_schema(std::string(put.schema.begin(), put.schema.end()));
  out->set_approx(put.approx);
  ShapeTo(put.shape, out->mutable_shape());
  out->set_deadline_ms(MillisUntil(now, deadline));
  const auto parts = static_cast<int>(put.parts.size());
  out->mutable_regions()->Resize(parts, 0);
  out->mutable_offsets()->Resize(parts, 0);
  out->mutable_crcs()->Resize(parts, 0);
  for (const BlockPart& part : put.parts) {
    const auto at = static_cast<int>(part.section * put.shape.blocks + (part.block - put.first));
    out->set_regions(at, part.region);
    out->set_offsets(at, part.offset);
    out->set_crcs(at, Crc32c({regions_.at(part.region)->data() + part.offset,
                              put.shape.section[part.section].block_bytes}));
  }
  if (!Send(message)) Fail(id, Away());
  return id;
}

absl::StatusOr<KvOpId> RemoteClient::PutState(Instant now, const KvState& state,
                                              Instant deadline) {
  const auto region = regions_.find(state.region);
  WEIR_TRY(CheckState(state, region == regions_.end() ? 0 : region->second->bytes()));
  if (deadline <= now) return Error(Reason::kDeadline, "a put's deadline is over", "deadline");
  WEIR_ASSIGN(const KvOpId id, Start({.kind = Operation::Kind::kPut}, deadline));
  v1::KvMessage message;
  v1::KvPutState* out = message.mutable_put_state();
  out->set_id(id.value);
  out->set_key(BytesOfKeys({&state.key, 1}));
  out->set_domain(BytesOfDomain(state.domain));
  out->set_position(state.position);
  out->set_region(state.region);
  out->set_offset(state.offset);
  out->set_bytes(state.bytes);
  out->set_crc(Crc32c({region->second->data() + state.offset, state.bytes}));
  out->set_deadline_ms(MillisUntil(now, deadline));
  if (!Send(message)) Fail(id, Away());
  return id;
}

absl::StatusOr<KvOpId> RemoteClient::LoadState(Instant, const KvState& into, Instant deadline) {
  const auto region = regions_.find(into.region);
  WEIR_TRY(CheckState(into, region == regions_.end() ? 0 : region->second->bytes()));
  WEIR_ASSIGN(const KvOpId id, Start({.kind = Operation::Kind::kState, .into = into}, deadline));
  v1::KvMessage message;
  message.mutable_find_state()->set_id(id.value);
  message.mutable_find_state()->set_key(BytesOfKeys({&into.key, 1}));
  if (!Send(message)) Fail(id, Away());
  return id;
}

void RemoteClient::TakeState(const v1::KvMessage& message) {
  const v1::KvStateFound& found = message.state_found();
  const KvOpId id(found.id());
  const auto operation = operations_.find(id);
  if (operation == operations_.end() || operation->second.kind != Operation::Kind::kState ||
      operation->second.copies > 0)
    return;
  KvState& into = operation->second.into;
  if (found.bytes() > into.bytes) {
    Fail(id, StateTooLong());
    return;
  }
  into.position = found.position();
  into.bytes = found.bytes();
  const CopyOp op{.from = node_,
                  .remote_region = kNodeRegion,
                  .remote_offset = found.place(),
                  .local_region = into.region,
                  .local_offset = into.offset,
                  .bytes = found.bytes(),
                  .crc32c = found.crc()};
  const absl::StatusOr<TransferId> copy = transfer_->Post({&op, 1}, Traffic::kHit);
  if (!copy.ok()) {
    Fail(id, copy.status());
    return;
  }
  ++operation->second.copies;
  copies_[*copy] = {.load = id};
}

absl::StatusOr<KvOpId> RemoteClient::EraseDomain(Instant, const DomainId& domain,
                                                 Instant deadline) {
  WEIR_ASSIGN(const KvOpId id, Start({.kind = Operation::Kind::kErase}, deadline));
  v1::KvMessage message;
  message.mutable_erase()->set_id(id.value);
  message.mutable_erase()->set_domain(BytesOfDomain(domain));
  if (!Send(message)) Fail(id, Away());
  return id;
}

void RemoteClient::Poll(Instant now, std::vector<KvOutcome>* out) {
  FollowLink();
  items_.clear();
  inbox_.PopSome(kInboxMax, &items_);
  v1::KvMessage message;
  for (const Item& item : items_) {
    if (item.link == link_seen_ && message.ParseFromString(item.bytes)) TakeMessage(message);
  }
  completions_.clear();
  transfer_->Poll(&completions_);
  for (const Completion& done : completions_) EndCopy(done);
  std::vector<KvOpId> late;
  deadlines_.Expire(now, &late);
  for (const KvOpId id : late) {
    WEIR_REACHED("kv client: an operation reached its deadline");
    Fail(id, Error(Reason::kDeadline, "the store did not answer in time"));
  }
  for (KvOutcome& outcome : outcomes_) out->push_back(std::move(outcome));
  outcomes_.clear();
}

void RemoteClient::FollowLink() {
  const uint32_t link = link_.load();
  if (link == link_seen_) return;
  LoseNode();
  link_seen_ = link;
  if (link % 2 == 0) return;
  v1::KvMessage message;
  v1::KvHello* hello = message.mutable_hello();
  hello->set_protocol(kKvProtocol);
  hello->set_instance(self_.value);
  hello->set_name(options_.name);
  for (const std::string& descriptor : transfer_->Descriptors()) hello->add_regions(descriptor);
  (void)Send(message);  // a link that broke again comes back here
}

void RemoteClient::TakeMessage(const v1::KvMessage& message) {
  switch (message.body_case()) {
    case v1::KvMessage::kHello:
      TakeHello(message);
      break;
    case v1::KvMessage::kFound:
      TakeFound(message.found());
      break;
    case v1::KvMessage::kFetched:
      TakeFetched(message);
      break;
    case v1::KvMessage::kStateFound:
      TakeState(message);
      break;
    case v1::KvMessage::kDone:
      TakeDone(message);
      break;
    default:  // of a newer node
      break;
  }
}

void RemoteClient::TakeHello(const v1::KvMessage& message) {
  const v1::KvHello& hello = message.hello();
  if (up() || hello.protocol() != kKvProtocol || hello.instance() == 0) return;
  const std::vector<std::string> regions(hello.regions().begin(), hello.regions().end());
  if (!transfer_->AddRemote(InstanceId(hello.instance()), regions).ok()) {
    WEIR_REACHED("kv client: the node's memory cannot be read from here");
    return;
  }
  node_ = InstanceId(hello.instance());
  lease_ = Millis(hello.lease_ms());
}

absl::Status RemoteClient::ReadStretch(const v1::KvStretch& from, const Found& found,
                                       Stretch* to) const {
  to->at = from.at();
  to->count = from.count();
  to->approx = from.approx();
  if (to->count == 0 || to->count > kRecordBlocksMax || to->at > found.keys ||
      to->count > found.keys - to->at)
    return Refused("the node names blocks that were not asked for");
  to->state = from.in_host() ? Stretch::State::kInHost : Stretch::State::kOnDisk;
  if (!from.in_host()) return absl::OkStatus();
  if (from.places_size() != static_cast<int>(found.shape.sections) ||
      from.crcs_size() != static_cast<int>(found.shape.sections * to->count))
    return Refused("the node describes a stretch of another shape");
  to->places.assign(from.places().begin(), from.places().end());
  to->crcs.assign(from.crcs().begin(), from.crcs().end());
  return absl::OkStatus();
}

void RemoteClient::TakeFound(const v1::KvFound& answer) {
  const KvOpId id(answer.id());
  const auto operation = operations_.find(id);
  if (operation == operations_.end() || operation->second.kind != Operation::Kind::kLookup) return;
  Found& found = lookups_.at(id);
  KvOutcome outcome{.id = id};
  for (const v1::KvStretch& from : answer.stretches()) {
    Stretch stretch;
    const absl::Status read = ReadStretch(from, found, &stretch);
    if (!read.ok() || stretch.at != outcome.blocks) {
      Fail(id, Refused("the node's answer does not fit the question"));
      return;
    }
    outcome.blocks += stretch.count;
    outcome.runs.push_back({stretch.at, stretch.count,
                            from.in_host() ? Tier::kHost : Tier::kDisk, stretch.approx});
    found.stretches.push_back(std::move(stretch));
  }
  outcomes_.push_back(std::move(outcome));
  operations_.erase(operation);
  deadlines_.Release(id);
  if (found.released) Forget(id);
}

void RemoteClient::AskFor(KvOpId lookup, uint32_t stretch) {
  Found& found = lookups_.at(lookup);
  const uint64_t id = ++last_id_;
  v1::KvMessage message;
  message.mutable_fetch()->set_id(id);
  message.mutable_fetch()->set_lookup(lookup.value);
  message.mutable_fetch()->set_stretch(stretch);
  if (!Send(message)) return;  // the link is gone, which fails the load
  found.stretches[stretch].state = Stretch::State::kFetching;
  ++found.fetches;
  fetches_[id] = {lookup, stretch};
}

void RemoteClient::TakeFetched(const v1::KvMessage& message) {
  const auto fetch = fetches_.find(message.fetched().id());
  if (fetch == fetches_.end()) return;
  const auto [lookup, index] = fetch->second;
  fetches_.erase(fetch);
  const auto found = lookups_.find(lookup);
  if (found == lookups_.end()) return;
  --found->second.fetches;
  Stretch stretch;
  const Stretch& asked = found->second.stretches[index];
  const absl::Status read = ReadStretch(message.fetched().stretch(), found->second, &stretch);
  if (!read.ok() || stretch.at != asked.at || stretch.count != asked.count ||
      stretch.state != Stretch::State::kInHost) {
    found->second.stretches[index].state = Stretch::State::kOnDisk;
  } else {
    stretch.fetched = true;
    found->second.stretches[index] = std::move(stretch);
  }
  AdvanceAll(lookup);
  const auto still = lookups_.find(lookup);
  if (still != lookups_.end() && still->second.stretches[index].copies == 0)
    ReleaseStretch(lookup, index);
}

void RemoteClient::TakeDone(const v1::KvMessage& message) {
  const v1::KvDone& done = message.done();
  const absl::Status status =
      done.has_failure() ? StatusFrom(done.failure()) : absl::OkStatus();
  const auto fetch = fetches_.find(done.id());
  if (fetch != fetches_.end()) {
    const auto [lookup, index] = fetch->second;
    fetches_.erase(fetch);
    const auto found = lookups_.find(lookup);
    if (found == lookups_.end()) return;
    --found->second.fetches;
    found->second.stretches[index].state = Stretch::State::kOnDisk;
    std::vector<KvOpId> failed;
    for (const auto& [id, operation] : operations_) {
      const bool waits = operation.kind == Operation::Kind::kLoad && operation.lookup == lookup &&
                         std::any_of(operation.pieces.begin(), operation.pieces.end(),
                                     [index = index](const Piece& piece) {
                                       return piece.stretch == index;
                                     });
      if (waits) failed.push_back(id);
    }
    for (const KvOpId id : failed) Fail(id, status);
    return;
  }
  const auto operation = operations_.find(KvOpId(done.id()));
  if (operation == operations_.end() || operation->second.kind == Operation::Kind::kLoad) return;
  Fail(operation->first, status);
}

void RemoteClient::AdvanceAll(KvOpId lookup) {
  std::vector<KvOpId> loads;
  for (const auto& [id, operation] : operations_) {
    if (operation.kind == Operation::Kind::kLoad && operation.lookup == lookup) loads.push_back(id);
  }
  for (const KvOpId id : loads) Advance(id);
}

void RemoteClient::Advance(KvOpId load) {
  Operation& operation = operations_.at(load);
  Found& found = lookups_.at(operation.lookup);
  for (Piece& piece : operation.pieces) {
    if (piece.state != Piece::State::kWaiting || !operation.status.ok()) continue;
    const Stretch::State state = found.stretches[piece.stretch].state;
    if (state == Stretch::State::kInHost) Copy(load, &operation, &piece);
    if (state == Stretch::State::kOnDisk && found.fetches < kFetchesMax)
      AskFor(operation.lookup, piece.stretch);
  }
  MaybeEnd(load);
}

void RemoteClient::Copy(KvOpId load, Operation* operation, Piece* piece) {
  const Found& found = lookups_.at(operation->lookup);
  const Stretch& stretch = found.stretches[piece->stretch];
  std::vector<CopyOp> ops;
  for (const BlockPart& part : piece->parts) {
    const uint32_t block = part.block - stretch.at;
    const uint32_t bytes = found.shape.section[part.section].block_bytes;
    ops.push_back({.from = node_,
                   .remote_region = kNodeRegion,
                   .remote_offset = stretch.places[part.section] + uint64_t{block} * bytes,
                   .local_region = part.region,
                   .local_offset = part.offset,
                   .bytes = bytes,
                   .crc32c = stretch.crcs[part.section * stretch.count + block]});
  }
  const absl::StatusOr<TransferId> id = transfer_->Post(ops, Traffic::kHit);
  if (!id.ok()) {
    operation->status = id.status();
    return;
  }
  piece->state = Piece::State::kCopying;
  ++operation->copies;
  ++lookups_.at(operation->lookup).stretches[piece->stretch].copies;
  copies_[*id] = {load, operation->lookup, piece->stretch};
}

void RemoteClient::EndCopy(const Completion& done) {
  const auto copy = copies_.find(done.id);
  if (copy == copies_.end()) return;
  const auto [load, lookup, stretch] = copy->second;
  copies_.erase(copy);
  Operation& operation = operations_.at(load);
  --operation.copies;
  if (operation.status.ok()) operation.status = done.status;
  for (Piece& piece : operation.pieces) {
    if (piece.stretch == stretch) piece.state = Piece::State::kEnded;
  }
  const auto found = lookups_.find(lookup);
  if (found != lookups_.end() && --found->second.stretches[stretch].copies == 0)
    ReleaseStretch(lookup, stretch);
  if (found != lookups_.end())
    AdvanceAll(lookup);
  else
    MaybeEnd(load);
}

void RemoteClient::ReleaseStretch(KvOpId lookup, uint32_t index) {
  Stretch& stretch = lookups_.at(lookup).stretches[index];
  if (!stretch.fetched) return;
  stretch.fetched = false;
  stretch.state = Stretch::State::kOnDisk;
  v1::KvMessage message;
  message.mutable_release()->set_lookup(lookup.value);
  message.mutable_release()->set_stretch(index);
  (void)Send(message);
}

void RemoteClient::Fail(KvOpId id, const absl::Status& status) {
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  Operation& operation = found->second;
  if (operation.status.ok()) operation.status = status;
  if (operation.kind != Operation::Kind::kLoad && operation.copies == 0) {
    outcomes_.push_back({.id = id, .status = operation.status});
    operations_.erase(found);
    deadlines_.Release(id);
    if (lookups_.contains(id)) Forget(id);
    return;
  }
  for (const auto& [transfer, copying] : copies_) {
    if (copying.load == id) transfer_->Cancel(transfer);
  }
  MaybeEnd(id);
}

void RemoteClient::MaybeEnd(KvOpId id) {
  const auto found = operations_.find(id);
  Operation& operation = found->second;
  if (operation.copies > 0) return;
  const bool all = std::all_of(operation.pieces.begin(), operation.pieces.end(), [](const Piece& p) {
    return p.state == Piece::State::kEnded;
  });
  if (!all && operation.status.ok()) return;
  const KvOpId lookup = operation.lookup;
  outcomes_.push_back({.id = id, .status = operation.status});
  if (operation.status.ok()) {
    outcomes_.back().position = operation.into.position;
    outcomes_.back().bytes = operation.into.bytes;
  }
  operations_.erase(found);
  deadlines_.Release(id);
  const auto of = lookups_.find(lookup);
  if (of == lookups_.end()) return;
  if (--of->second.loads == 0 && of->second.released) Forget(lookup);
}

void RemoteClient::LoseNode() {
  if (up()) transfer_->RemoveRemote(node_);
  node_ = InstanceId();
  lookups_.clear();
  fetches_.clear();
  std::vector<KvOpId> all;
  for (const auto& [id, operation] : operations_) all.push_back(id);
  for (const KvOpId id : all) Fail(id, Away());
}

}  // namespace weir::kv
