// SPDX-License-Identifier: Apache-2.0
#include "kvstore/node/node_core.h"

#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "kvstore/client/kv_client.h"
#include "kvstore/client/kv_wire.h"

namespace weir::kv {
namespace {

absl::Status Bad(std::string_view why, std::string_view param) {
  return Error(Reason::kBadField, why, param);
}

absl::Status Full(std::string_view why) { return Error(Reason::kQueueFull, why); }

bool SameSections(const RecordShape& a, const RecordShape& b) {
  return a.sections == b.sections && a.section == b.section;
}

}  // namespace

NodeCore::NodeCore(const NodeOptions& options, std::span<const std::byte> arena,
                   TieredStore* store, Transfer* transfer, const Windows& windows)
    : options_(options),
      arena_(arena),
      store_(*store),
      transfer_(*transfer),
      windows_(windows),
      leases_(options.lookups_max),
      put_deadlines_(options.puts_max) {
  if (windows_.ring == nullptr) return;
  const size_t rooms = windows_.staging.size() / windows_.ring->options().state_bytes_max;
  for (uint32_t i = 0; i < rooms; ++i) free_staging_.push_back(i);
}

std::span<std::byte> NodeCore::Staging(uint32_t index) const {
  const uint32_t bytes = windows_.ring->options().state_bytes_max;
  return windows_.staging.subspan(size_t{index} * bytes, bytes);
}

void NodeCore::On(Instant now, const Event& event, Actions* out) {
  if (event.kind == Event::Kind::kMessage) OnMessage(now, event.peer, *event.message, out);
  if (event.kind == Event::Kind::kDown) OnDown(event.peer);
  Poll(now, out);
}

Instant NodeCore::NextDeadline() const {
  Instant next = std::min(leases_.NextDeadline(), put_deadlines_.NextDeadline());
  if (store_.disk_busy() || !waiting_.empty()) next = std::min(next, polled_ + options_.disk_poll);
  return next;
}

void NodeCore::SayDone(PeerId peer, uint64_t id, const absl::Status& status, Actions* out) {
  NodeActions::Send& send = out->sends.emplace_back();
  send.peer = peer;
  v1::KvDone* done = send.message.mutable_done();
  done->set_id(id);
  if (!status.ok()) FailureTo(status, done->mutable_failure());
}

void NodeCore::OnMessage(Instant now, PeerId peer, const v1::KvMessage& message, Actions* out) {
  uint64_t id = 0;
  absl::Status status;
  if (!message.has_hello() && !clients_.contains(peer)) {
    ++stats_.refused;
    out->closes.push_back(peer);
    return;
  }
  switch (message.body_case()) {
    case v1::KvMessage::kHello:
      status = OnHello(peer, message.hello(), out);
      if (!status.ok()) out->closes.push_back(peer);
      break;
    case v1::KvMessage::kLookup:
      id = message.lookup().id();
      status = OnLookup(now, peer, message.lookup(), out);
      break;
    case v1::KvMessage::kFetch:
      id = message.fetch().id();
      status = OnFetch(peer, message.fetch(), out);
      break;
    case v1::KvMessage::kPut:
      id = message.put().id();
      status = OnPut(now, peer, message.put(), out);
      break;
    case v1::KvMessage::kPutState:
      id = message.put_state().id();
      status = OnPutState(now, peer, message.put_state());
      break;
    case v1::KvMessage::kFindState:
      id = message.find_state().id();
      status = OnFindState(now, peer, message.find_state(), out);
      break;
    case v1::KvMessage::kErase:
      id = message.erase().id();
      status = OnErase(peer, message.erase(), out);
      break;
    case v1::KvMessage::kRelease:
      OnRelease(peer, message.release());
      break;
    default:
      status = Bad("a node does not take this message", "body");
      break;
  }
  if (status.ok()) return;
  ++stats_.refused;
  SayDone(peer, id, status, out);
}

absl::Status NodeCore::OnHello(PeerId peer, const v1::KvHello& hello, Actions* out) {
  const InstanceId instance(hello.instance());
  if (hello.protocol() != kKvProtocol) return Bad("the engine speaks another protocol", "protocol");
  if (instance == InstanceId() || instance == options_.instance || clients_.contains(peer))
    return Bad("an engine says hello once, with a number of its own", "instance");
  if (clients_.size() >= options_.clients_max) return Full("the store has too many clients");
  for (const auto& [other, theirs] : clients_) {
    if (theirs != instance) continue;
    // Its old link died without our notice.
    WEIR_REACHED("node: an engine came back before its old link was missed");
    out->closes.push_back(other);
    OnDown(other);
    break;
  }
  const std::vector<std::string> regions(hello.regions().begin(), hello.regions().end());
  WEIR_TRY(transfer_.AddRemote(instance, regions));
  clients_.emplace(peer, instance);
  NodeActions::Send& send = out->sends.emplace_back();
  send.peer = peer;
  v1::KvHello* mine = send.message.mutable_hello();
  mine->set_protocol(kKvProtocol);
  mine->set_instance(options_.instance.value);
  mine->set_name(options_.name);
  mine->set_lease_ms(static_cast<uint32_t>(options_.lease / Millis(1)));
  for (const std::string& descriptor : transfer_.Descriptors()) mine->add_regions(descriptor);
  return absl::OkStatus();
}

void NodeCore::OnDown(PeerId peer) {
  const auto client = clients_.find(peer);
  if (client == clients_.end()) return;
  transfer_.RemoveRemote(client->second);  // what is being copied from it ends with kPeerLost
  clients_.erase(client);
  std::erase_if(waiting_, [&](const Fetch& fetch) { return fetch.peer == peer; });
  // Its leases run out by themselves: it may live and be reading.
}

// Takes hold of a stretch's memory; false when it is not there.
bool NodeCore::TakeRef(Lookup* lookup, Stretch* stretch) {
  if (stretch->ref) return true;
  HostRef ref = store_.Get(stretch->hit, stretch->last);
  if (!ref || !SameSections(ref.header().shape, lookup->shape)) return false;
  stretch->ref = std::move(ref);
  return true;
}

void NodeCore::Describe(const Lookup& lookup, const Stretch& stretch, v1::KvStretch* out) const {
  const TieredStore::Hit& hit = stretch.hit;
  out->set_first(hit.first);
  out->set_count(hit.count);
  out->set_at(hit.at);
  out->set_approx(store_.index().Holds(hit.run) && store_.index().approx(hit.run));
  out->set_in_host(static_cast<bool>(stretch.ref));
  if (!stretch.ref) return;
  const RecordHeader& header = stretch.ref.header();
  const auto base = static_cast<uint64_t>(stretch.ref.payload().data() - arena_.data());
  for (uint32_t i = 0; i < lookup.shape.sections; ++i) {
    out->add_places(base + header.shape.BlockAt(i, hit.first));
    for (uint32_t j = 0; j < hit.count; ++j) out->add_crcs(header.crc[i][hit.first + j]);
  }
}

absl::Status NodeCore::OnLookup(Instant now, PeerId peer, const v1::KvLookup& ask, Actions* out) {
  WEIR_ASSIGN(const BlockKey root, KeyFrom(ask.root()));
  WEIR_ASSIGN(const std::vector<BlockKey> keys, KeysFrom(ask.keys()));
  Lookup lookup;
  WEIR_ASSIGN(lookup.shape, ShapeFrom(ask.shape(), 1));
  const LookupId id{peer, ask.id()};
  if (lookups_.contains(id)) return Bad("an operation's number is used twice", "id");
  if (lookups_.size() >= options_.lookups_max) return Full("the store has too many lookups");
  std::vector<TieredStore::Hit> hits;
  store_.Match(root, keys, ask.exact() ? RunIndex::Want::kExact : RunIndex::Want::kAny, &hits);
  NodeActions::Send& send = out->sends.emplace_back();
  send.peer = peer;
  v1::KvFound* found = send.message.mutable_found();
  found->set_id(ask.id());
  uint32_t blocks = 0;
  for (const TieredStore::Hit& hit : hits) {
    Stretch stretch{hit, keys[hit.at + hit.count - 1], {}};
    if (!TakeRef(&lookup, &stretch) &&
        (store_.index().tiers(hit.run) & RunIndex::kDisk) == 0) {
      WEIR_REACHED("node: a hit that is another run or of another shape");
      break;
    }
    Describe(lookup, stretch, found->add_stretches());
    blocks += hit.count;
    lookup.stretches.push_back(std::move(stretch));
  }
  found->set_blocks(blocks);
  ++stats_.lookups_total;
  stats_.asked_blocks += keys.size();
  stats_.found_blocks += blocks;
  if (lookup.stretches.empty()) return absl::OkStatus();  // nothing to hold
  WEIR_CHECK(leases_.Grant(id, now + options_.lease));
  lookups_.emplace(id, std::move(lookup));
  return absl::OkStatus();
}

void NodeCore::OnRelease(PeerId peer, const v1::KvRelease& release) {
  const LookupId id{peer, release.lookup()};
  const auto lookup = lookups_.find(id);
  if (lookup == lookups_.end()) return;
  if (!release.has_stretch()) {
    lookups_.erase(lookup);
    leases_.Release(id);
  } else if (release.stretch() < lookup->second.stretches.size()) {
    lookup->second.stretches[release.stretch()].ref.Reset();
  }
}

absl::Status NodeCore::OnFetch(PeerId peer, const v1::KvFetch& ask, Actions* out) {
  const Fetch fetch{peer, ask.id(), {peer, ask.lookup()}, ask.stretch()};
  const auto lookup = lookups_.find(fetch.lookup);
  if (lookup == lookups_.end())
    return Error(Reason::kLeaseExpired, "the lookup's lease is over", "lookup");
  if (fetch.stretch >= lookup->second.stretches.size())
    return Bad("the lookup has no such stretch", "stretch");
  if (waiting_.size() + fetching_count_ >= options_.fetches_max)
    return Full("the store has too many reads of its disk under way");
  waiting_.push_back(fetch);
  StartFetches(out);
  return absl::OkStatus();
}

// In order: what is read at once has a share of the memory, the rest waits.
void NodeCore::StartFetches(Actions* out) {
  while (!waiting_.empty()) {
    const Fetch fetch = waiting_.front();
    const auto lookup = lookups_.find(fetch.lookup);
    if (lookup == lookups_.end()) {
      waiting_.pop_front();
      Answer(fetch, Error(Reason::kLeaseExpired, "the lookup's lease is over", "lookup"), out);
      continue;
    }
    Stretch& stretch = lookup->second.stretches[fetch.stretch];
    if (TakeRef(&lookup->second, &stretch)) {
      waiting_.pop_front();
      Answer(fetch, absl::OkStatus(), out);
      continue;
    }
    const absl::StatusOr<BlobId> read =
        store_.Promote(stretch.hit, lookup->second.shape, stretch.last);
    if (!read.ok() && ReasonOf(read.status()) == Reason::kQueueFull && fetching_count_ > 0) return;
    waiting_.pop_front();
    if (!read.ok()) {
      Answer(fetch, read.status(), out);
      continue;
    }
    fetching_[*read].push_back(fetch);
    ++fetching_count_;
  }
}

void NodeCore::EndFetch(const TieredStore::Fetched& fetched, Actions* out) {
  const auto found = fetching_.find(fetched.id);
  if (found == fetching_.end()) return;
  const std::vector<Fetch> fetches = std::move(found->second);
  fetching_.erase(found);
  fetching_count_ -= fetches.size();
  for (const Fetch& fetch : fetches) Answer(fetch, fetched.status, out);
}

void NodeCore::Answer(const Fetch& fetch, const absl::Status& status, Actions* out) {
  absl::Status ended = status;
  const auto lookup = lookups_.find(fetch.lookup);
  if (ended.ok() && lookup == lookups_.end())
    ended = Error(Reason::kLeaseExpired, "the lookup's lease is over", "lookup");
  if (ended.ok() && !TakeRef(&lookup->second, &lookup->second.stretches[fetch.stretch]))
    ended = Error(Reason::kUnknownModel, "the blocks went meanwhile", "stretch");
  if (!ended.ok()) {
    ++stats_.fetch_failed;
    if (clients_.contains(fetch.peer)) SayDone(fetch.peer, fetch.id, ended, out);
    return;
  }
  ++stats_.fetched;
  if (!clients_.contains(fetch.peer)) return;
  NodeActions::Send& send = out->sends.emplace_back();
  send.peer = fetch.peer;
  send.message.mutable_fetched()->set_id(fetch.id);
  Describe(lookup->second, lookup->second.stretches[fetch.stretch],
           send.message.mutable_fetched()->mutable_stretch());
}

absl::StatusOr<std::vector<CopyOp>> NodeCore::CopiesOf(const v1::KvPut& ask, InstanceId from,
                                                       const TieredStore::Filling& filling) const {
  const RecordShape& shape = filling.header.shape;
  const auto base = static_cast<uint64_t>(filling.payload.data() - arena_.data());
  std::vector<CopyOp> ops;
  for (uint32_t i = 0; i < shape.sections; ++i) {
    for (uint32_t j = 0; j < shape.blocks; ++j) {
      const auto at = static_cast<int>(i * shape.blocks + j);
      ops.push_back({.from = from,
                     .remote_region = ask.regions(at),
                     .remote_offset = ask.offsets(at),
                     .local_region = kNodeRegion,
                     .local_offset = base + shape.BlockAt(i, j),
                     .bytes = shape.section[i].block_bytes,
                     .crc32c = ask.crcs(at)});
    }
  }
  return ops;
}

absl::Status NodeCore::OnPut(Instant now, PeerId peer, const v1::KvPut& ask, Actions* out) {
  Putting put{.peer = peer, .id = ask.id()};
  WEIR_ASSIGN(put.root, KeyFrom(ask.root()));
  WEIR_ASSIGN(put.keys, KeysFrom(ask.keys()));
  RecordHeader header;
  WEIR_ASSIGN(header.domain, DomainFrom(ask.domain()));
  if (ask.schema().size() != header.schema.size()) return Bad("a schema has 32 bytes", "schema");
  std::copy(ask.schema().begin(), ask.schema().end(), header.schema.begin());
  header.approx = ask.approx();
  if (ask.first() >= put.keys.size() || put.keys.size() - ask.first() > kRecordBlocksMax)
    return Bad("a put is of 1 to 32 blocks", "first");
  WEIR_ASSIGN(header.shape,
              ShapeFrom(ask.shape(), static_cast<uint32_t>(put.keys.size()) - ask.first()));
  const auto parts = static_cast<int>(header.shape.sections * header.shape.blocks);
  if (ask.regions_size() != parts || ask.offsets_size() != parts || ask.crcs_size() != parts)
    return Bad("a put names each part of each block", "regions");
  for (uint32_t i = 0; i < header.shape.sections; ++i) {
    for (uint32_t j = 0; j < header.shape.blocks; ++j)
      header.crc[i][j] = ask.crcs(static_cast<int>(i * header.shape.blocks + j));
  }
  if (puts_.size() >= options_.puts_max) return Full("the store has too many puts under way");
  WEIR_ASSIGN(put.filling, store_.Reserve(put.root, put.keys, ask.first(), std::move(header)));
  if (put.filling.here) {
    SayDone(peer, ask.id(), absl::OkStatus(), out);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<CopyOp>> ops = CopiesOf(ask, clients_.at(peer), put.filling);
  const absl::StatusOr<TransferId> id = transfer_.Post(*ops, Traffic::kBackground);
  if (!id.ok()) {
    store_.Abort(put.filling);
    return id.status();
  }
  const Duration left = std::min<Duration>(Millis(ask.deadline_ms()), options_.put_max);
  WEIR_CHECK(put_deadlines_.Grant(*id, now + left));
  puts_.emplace(*id, std::move(put));
  return absl::OkStatus();
}

absl::Status NodeCore::OnPutState(Instant now, PeerId peer, const v1::KvPutState& ask) {
  if (windows_.ring == nullptr) return NoStates();
  auto state = std::make_unique<StatePut>();
  WEIR_ASSIGN(state->key, KeyFrom(ask.key()));
  WEIR_ASSIGN(state->domain, DomainFrom(ask.domain()));
  state->position = ask.position();
  state->bytes = ask.bytes();
  if (ask.bytes() == 0 || ask.bytes() > windows_.ring->options().state_bytes_max)
    return Error(Reason::kTooLarge, "a window state is larger than a slot", "bytes");
  if (free_staging_.empty() || puts_.size() >= options_.puts_max)
    return Full("the store has too many puts under way");
  state->staging = free_staging_.back();
  const CopyOp op{.from = clients_.at(peer),
                  .remote_region = ask.region(),
                  .remote_offset = ask.offset(),
                  .local_region = kNodeRegion,
                  .local_offset =
                      static_cast<uint64_t>(Staging(state->staging).data() - arena_.data()),
                  .bytes = ask.bytes(),
                  .crc32c = ask.crc()};
  WEIR_ASSIGN(const TransferId id, transfer_.Post({&op, 1}, Traffic::kBackground));
  free_staging_.pop_back();
  const Duration left = std::min<Duration>(Millis(ask.deadline_ms()), options_.put_max);
  WEIR_CHECK(put_deadlines_.Grant(id, now + left));
  Putting& put = puts_[id];
  put.peer = peer;
  put.id = ask.id();
  put.state = std::move(state);
  return absl::OkStatus();
}

absl::Status NodeCore::EndStatePut(Instant now, const StatePut& put, absl::Status status) {
  free_staging_.push_back(put.staging);
  WEIR_TRY(status);
  ++stats_.states_put;
  return windows_.ring->Put(now, put.key, put.position, Staging(put.staging).first(put.bytes),
                            put.domain);
}

absl::Status NodeCore::OnFindState(Instant now, PeerId peer, const v1::KvFindState& ask,
                                   Actions* out) {
  if (windows_.ring == nullptr) return NoStates();
  WEIR_ASSIGN(const BlockKey key, KeyFrom(ask.key()));
  ++stats_.states_asked;
  const absl::StatusOr<WindowRing::State> state = windows_.ring->Find(now, key);
  if (!state.ok()) {  // a miss is no mistake
    SayDone(peer, ask.id(), state.status(), out);
    return absl::OkStatus();
  }
  ++stats_.states_found;
  NodeActions::Send& send = out->sends.emplace_back();
  send.peer = peer;
  v1::KvStateFound* found = send.message.mutable_state_found();
  found->set_id(ask.id());
  found->set_position(state->position);
  found->set_place(static_cast<uint64_t>(state->bytes.data() - arena_.data()));
  found->set_bytes(static_cast<uint32_t>(state->bytes.size()));
  found->set_crc(Crc32c(state->bytes));
  return absl::OkStatus();
}

void NodeCore::EndPut(Instant now, const Completion& done, Actions* out) {
  const auto found = puts_.find(done.id);
  WEIR_CHECK(found != puts_.end());
  Putting put = std::move(found->second);
  puts_.erase(found);
  put_deadlines_.Release(done.id);
  absl::Status status = put.status.ok() ? done.status : put.status;
  if (put.state) {
    status = EndStatePut(now, *put.state, std::move(status));
  } else if (status.ok()) {
    status = store_.Commit(put.root, put.keys, put.filling);
  } else {
    WEIR_REACHED("node: a put that did not land");
    store_.Abort(put.filling);
  }
  if (status.ok() && !put.state) {
    stats_.put_blocks += put.filling.header.shape.blocks;
    stats_.put_bytes += put.filling.payload.size();
  } else if (!status.ok()) {
    ++stats_.put_failed;
  }
  if (clients_.contains(put.peer)) SayDone(put.peer, put.id, status, out);
}

absl::Status NodeCore::OnErase(PeerId peer, const v1::KvErase& ask, Actions* out) {
  WEIR_ASSIGN(const DomainId domain, DomainFrom(ask.domain()));
  for (auto& [id, put] : puts_) {  // what has not landed yet was put before
    if ((put.state ? put.state->domain : put.filling.header.domain) != domain) continue;
    put.status = Error(Reason::kCancelled, "the domain was erased meanwhile", "domain");
    transfer_.Cancel(id);
  }
  if (windows_.ring != nullptr) windows_.ring->EraseDomain(domain);
  WEIR_TRY(store_.EraseDomain(domain));
  SayDone(peer, ask.id(), absl::OkStatus(), out);
  return absl::OkStatus();
}

void NodeCore::Poll(Instant now, Actions* out) {
  polled_ = now;
  std::vector<Completion> completions;
  transfer_.Poll(&completions);
  for (const Completion& done : completions) EndPut(now, done, out);
  std::vector<TieredStore::Fetched> fetched;
  store_.Poll(IoWait::kNow, &fetched);
  for (const TieredStore::Fetched& one : fetched) EndFetch(one, out);
  std::vector<LookupId> lookups;
  leases_.Expire(now, &lookups);
  for (const LookupId& id : lookups) {
    WEIR_REACHED("node: a lease ran out");
    ++stats_.leases_expired;
    lookups_.erase(id);
  }
  std::vector<TransferId> puts;
  put_deadlines_.Expire(now, &puts);
  for (const TransferId id : puts) {
    puts_.at(id).status = Error(Reason::kDeadline, "the put did not land in time", "deadline_ms");
    transfer_.Cancel(id);
  }
  StartFetches(out);
}

NodeStats NodeCore::stats() const {
  NodeStats stats = stats_;
  stats.clients = static_cast<uint32_t>(clients_.size());
  stats.lookups = static_cast<uint32_t>(lookups_.size());
  stats.puts = static_cast<uint32_t>(puts_.size());
  stats.fetches = static_cast<uint32_t>(waiting_.size() + fetching_count_);
  return stats;
}

}  // namespace weir::kv
