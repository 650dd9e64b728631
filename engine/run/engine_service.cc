// SPDX-License-Identifier: Apache-2.0
#include "engine/run/engine_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/runtime/clock.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "base/stdx/units.h"

namespace weir::engine {
namespace {

constexpr uint32_t kProtocol = 1;          // proto/README: raised when a peer must understand more
constexpr size_t kInboxPerStep = 1024;     // what one turn takes in before it looks at the device
constexpr Duration kIdleWaitMax = Millis(50);
constexpr Duration kPublishEvery = Millis(50);

Role RoleOf(pb::RoleKind kind) {
  switch (kind) {
    case pb::ROLE_KIND_ROUTER: return Role::kRouter;
    case pb::ROLE_KIND_PREFILL: return Role::kPrefill;
    case pb::ROLE_KIND_DECODE: return Role::kDecode;
    case pb::ROLE_KIND_VISION: return Role::kVision;
    default: return Role::kUnspecified;
  }
}

pb::RoleKind KindOf(Role role) {
  switch (role) {
    case Role::kRouter: return pb::ROLE_KIND_ROUTER;
    case Role::kPrefill: return pb::ROLE_KIND_PREFILL;
    case Role::kDecode: return pb::ROLE_KIND_DECODE;
    case Role::kVision: return pb::ROLE_KIND_VISION;
    default: return pb::ROLE_KIND_UNSPECIFIED;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineService>> EngineService::Create(EngineServiceOptions options) {
  std::unique_ptr<EngineService> service(new EngineService(std::move(options)));
  EngineServiceOptions& o = service->options_;
  if (o.make_transfer) {
    WEIR_ASSIGN(service->transfer_, o.make_transfer([self = service.get()] {
      if (self->wake_queued_.exchange(true)) return;
      Item item;
      if (!self->inbox_.TryPush(std::move(item))) self->wake_queued_ = false;
    }));
  }
  Channel::Options channel_options;
  channel_options.listen_address = o.listen_address;
  WEIR_ASSIGN(service->channel_, o.make_channel(channel_options, service.get()));
  if (o.advertised_address.empty() && !o.listen_address.empty()) {
    // A fixed address is told as it is; a picked port is told with the host that was asked for.
    o.advertised_address = o.listen_address;
    const size_t colon = o.listen_address.rfind(':');
    if (o.listen_address.rfind("mem:", 0) != 0 && colon != std::string::npos) {
      o.advertised_address =
          absl::StrCat(o.listen_address.substr(0, colon), ":", service->channel_->listen_port());
    }
  }
  return service;
}

EngineService::EngineService(EngineServiceOptions options)
    : options_(std::move(options)), inbox_(options_.inbox_capacity) {}

EngineService::~EngineService() { Stop(); }

void EngineService::Start() {
  WEIR_CHECK(!started_);
  started_ = true;
  thread_ = std::thread([this] { Run(); });
}

void EngineService::Drain(Instant deadline, Task drained) {
  {
    absl::MutexLock lock(&mu_);
    drained_ = std::move(drained);
  }
  Item item;
  item.kind = Item::Kind::kDrain;
  item.deadline = deadline;
  // A full inbox empties within a turn; the owner of a drain is a signal handler's thread.
  while (!inbox_.TryPush(std::move(item)) && !inbox_.closed()) std::this_thread::yield();
}

void EngineService::Stop() {
  stopping_ = true;
  inbox_.Close();
  if (thread_.joinable()) thread_.join();
  if (channel_) channel_->Shutdown();
  transfer_.reset();
}

EngineState EngineService::state() const {
  absl::MutexLock lock(&mu_);
  return published_;
}

kv::TransferStats EngineService::transfer_stats() const {
  absl::MutexLock lock(&mu_);
  return published_transfer_;
}

// ---- the channel's thread

void EngineService::OnUp(PeerId peer, std::string_view address) {
  Item item;
  item.kind = Item::Kind::kUp;
  item.peer = peer;
  item.address = std::string(address);
  // Ups and downs must not be lost: close the link if there is no room, and it will come again.
  if (!inbox_.TryPush(std::move(item))) channel_->Close(peer);
}

void EngineService::OnDown(PeerId peer, const absl::Status&) {
  Item item;
  item.kind = Item::Kind::kDown;
  item.peer = peer;
  while (!inbox_.TryPush(std::move(item)) && !inbox_.closed()) std::this_thread::yield();
}

bool EngineService::OnMessage(PeerId peer, std::string&& bytes) {
  auto message = std::make_unique<pb::Envelope>();
  Item item;
  item.kind = Item::Kind::kMessage;
  item.peer = peer;
  if (!message->ParseFromString(bytes)) {
    item.kind = Item::Kind::kDown;  // not our protocol
    if (!inbox_.TryPush(std::move(item))) return false;
    channel_->Close(peer);
    return true;
  }
  item.message = std::move(message);
  return inbox_.TryPush(std::move(item));  // full: offered again, the peer's queue backs up
}

// ---- the step thread

void EngineService::Run() {
  for (const std::string& router : options_.routers) {
    const PeerId id = channel_->Dial(router);
    Peer& peer = peers_[id.value];
    peer.id = id;
    peer.router_dial = true;
  }
  std::vector<Item> batch;
  while (!stopping_) {
    batch.clear();
    if (launched_ != nullptr) {
      inbox_.PopSome(kInboxPerStep, &batch);
    } else {
      inbox_.WaitSome(kInboxPerStep, IdleWait(Now()), &batch);
    }
    const Instant now = Now();
    for (Item& item : batch) Handle(now, item);
    PollTransfer(now);
    CheckDials(now);
    if (options_.core->NextDeadline() <= now) Deliver(now, Tick{});
    if (launched_ != nullptr) RunStep(now);
    Publish(Now());
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
}

Duration EngineService::IdleWait(Instant now) const {
  if (!refused_.empty() || !refused_peers_.empty()) return Duration::zero();
  Instant until = std::min(options_.core->NextDeadline(), now + kIdleWaitMax);
  for (const DelayedFetch& delayed : delayed_) until = std::min(until, delayed.due);
  return std::max(until - now, Duration::zero());
}

void EngineService::RunStep(Instant now) {
  const StepPlan* plan = std::exchange(launched_, nullptr);
  options_.model->Launch(*plan);
  const bool complete = options_.model->Collect(plan->step, /*wait=*/true, &result_);
  WEIR_CHECK(complete);
  Deliver(Now(), StepDone{result_});
}

void EngineService::Deliver(Instant now, const EngineEvent& event) {
  options_.core->On(now, event, &actions_);
  Perform(now);
  actions_.Clear();
}

void EngineService::Handle(Instant now, Item& item) {
  switch (item.kind) {
    case Item::Kind::kUp: {
      Peer& peer = peers_[item.peer.value];
      peer.id = item.peer;
      peer.up = true;
      pb::Envelope hello;
      *hello.mutable_hello() = MakeHello();
      if (!channel_->Send(item.peer, hello.SerializeAsString())) LosePeer(now, item.peer);
      return;
    }
    case Item::Kind::kDown:
      LosePeer(now, item.peer);
      return;
    case Item::Kind::kMessage:
      HandleMessage(now, item.peer, *item.message);
      return;
    case Item::Kind::kDrain:
      Deliver(now, DrainRequested{item.deadline});
      return;
    case Item::Kind::kWake:
      wake_queued_ = false;
      return;
  }
}

void EngineService::HandleMessage(Instant now, PeerId from, const pb::Envelope& message) {
  const auto found = peers_.find(from.value);
  if (found == peers_.end() || !found->second.up) return;  // overtaken by its loss
  Peer& peer = found->second;
  if (message.has_hello()) {
    HandleHello(now, peer, message.hello());
    return;
  }
  if (message.has_hello_refused() || peer.instance.value == 0) {
    // Refused, or words before Hello. A router is tried again later, anyone else is dropped.
    LosePeer(now, from);
    return;
  }
  Deliver(now, Received{peer.instance, message});
}

absl::Status EngineService::CheckHello(const pb::Hello& hello) const {
  if (hello.protocol_max() < kProtocol || hello.protocol_min() > kProtocol) {
    return Error(Reason::kBadField,
                 absl::StrCat("protocol ", hello.protocol_min(), " to ", hello.protocol_max(),
                              " does not include ours, ", kProtocol),
                 "protocol_max");
  }
  if (hello.instance() == 0) return Error(Reason::kBadField, "instance must not be 0", "instance");
  if (hello.role() == pb::ROLE_KIND_ROUTER) return absl::OkStatus();
  const pb::Geometry& ours = options_.geometry;
  const pb::Geometry& theirs = hello.geometry();
  if (theirs.model_digest() != ours.model_digest()) {
    return Error(Reason::kBadField, "the peer serves another checkpoint", "geometry.model_digest");
  }
  if (theirs.layout_digest() != ours.layout_digest()) {
    return Error(Reason::kBadField, "the peer lays its KV out differently",
                 "geometry.layout_digest");
  }
  return absl::OkStatus();
}

void EngineService::HandleHello(Instant now, Peer& peer, const pb::Hello& hello) {
  if (peer.instance.value != 0) return;  // said already
  absl::Status status = CheckHello(hello);
  const InstanceId instance(hello.instance());
  if (status.ok() && peer.dialled_for.value != 0 && peer.dialled_for != instance) {
    status = Error(Reason::kPeerLost, "another instance answers at this address now");
  }
  if (status.ok() && peer_of_.contains(instance)) {
    status = Error(Reason::kStaleEpoch, "this instance has a link already");
  }
  if (status.ok() && transfer_ && hello.regions_size() > 0) {
    const std::vector<std::string> regions(hello.regions().begin(), hello.regions().end());
    status = transfer_->AddRemote(instance, regions);
  }
  if (!status.ok()) {
    pb::Envelope refusal;
    pb::Failure* failure = refusal.mutable_hello_refused()->mutable_failure();
    failure->set_reason(static_cast<uint32_t>(ReasonOf(status)));
    failure->set_message(std::string(StdView(status.message())));
    failure->set_param(ParamOf(status));
    (void)channel_->Send(peer.id, refusal.SerializeAsString());
    LosePeer(now, peer.id);
    return;
  }
  peer.instance = instance;
  peer.role = RoleOf(hello.role());
  peer.dial_deadline = kNever;
  peer_of_[instance] = peer.id;
  arena_of_[instance] = hello.arena();
  if (peer.role == Role::kRouter) routers_up_.fetch_add(1, std::memory_order_relaxed);
  Deliver(now, PeerUp{instance, peer.role, hello.arena()});
}

void EngineService::LosePeer(Instant now, PeerId id) {
  const auto found = peers_.find(id.value);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  InstanceId lost = peer.instance;
  if (lost.value == 0) lost = peer.dialled_for;
  if (peer.instance.value != 0 && peer.role == Role::kRouter) {
    routers_up_.fetch_sub(1, std::memory_order_relaxed);
  }
  peer.instance = InstanceId();
  peer.up = false;
  if (peer.router_dial) {
    // Dialled for good: the channel brings it up again, maybe as another instance.
    peer.role = Role::kUnspecified;
  } else {
    channel_->Close(id);
    peers_.erase(found);
  }
  if (lost.value == 0) return;
  peer_of_.erase(lost);
  arena_of_.erase(lost);
  if (transfer_) transfer_->RemoveRemote(lost);
  Deliver(now, PeerDown{lost});
}

void EngineService::CheckDials(Instant now) {
  std::vector<PeerId> late;
  for (const auto& [id, peer] : peers_) {
    if (peer.dial_deadline <= now) late.push_back(peer.id);
  }
  late.insert(late.end(), refused_peers_.begin(), refused_peers_.end());
  refused_peers_.clear();
  for (const PeerId id : late) LosePeer(now, id);
}

// ---- actions

void EngineService::Perform(Instant now) {
  for (const EngineActions::Dial& dial : actions_.dials) PerformDial(now, dial);
  for (EngineActions::Send& send : actions_.sends) PerformSend(send);
  for (Fetch& fetch : actions_.fetches) PerformFetch(now, std::move(fetch));
  for (const FetchId fetch : actions_.cancels) {
    const auto delayed = std::find_if(delayed_.begin(), delayed_.end(),
                                      [&](const DelayedFetch& d) { return d.fetch.id == fetch; });
    if (delayed != delayed_.end()) {
      refused_.push_back({fetch, Reason::kCancelled});
      delayed_.erase(delayed);
    } else if (const auto found = transfer_of_.find(fetch); found != transfer_of_.end()) {
      transfer_->Cancel(kv::TransferId(found->second));
    }
  }
  if (!actions_.tokens.empty()) PerformTokens();
  if (actions_.launch != nullptr) launched_ = actions_.launch;
  if (actions_.drained) {
    Task drained;
    {
      absl::MutexLock lock(&mu_);
      drained = std::move(drained_);
      drained_ = nullptr;
    }
    if (drained) drained();
  }
  if (actions_.poisoned && options_.on_poisoned) options_.on_poisoned();
}

void EngineService::PerformDial(Instant now, const EngineActions::Dial& dial) {
  if (peer_of_.contains(dial.instance)) return;
  for (const auto& [id, peer] : peers_) {
    if (peer.dialled_for == dial.instance) return;
  }
  const PeerId id = channel_->Dial(dial.address);
  Peer& peer = peers_[id.value];
  peer.id = id;
  peer.dialled_for = dial.instance;
  peer.dial_deadline = now + options_.dial_timeout;
}

void EngineService::PerformSend(EngineActions::Send& send) {
  if (send.message.has_chunk_done() || send.message.has_prefill_done()) {
    AddChecksums(send.to, &send.message);
  }
  SendTo(send.to, send.message);
}

void EngineService::SendTo(InstanceId to, const pb::Envelope& message) {
  const auto found = peer_of_.find(to);
  if (found == peer_of_.end()) return;  // lost meanwhile; the core hears PeerDown
  if (channel_->Send(found->second, message.SerializeAsString())) return;
  // A peer that does not take its messages is as good as lost; told on the next turn.
  refused_peers_.push_back(found->second);
}

void EngineService::AddChecksums(InstanceId to, pb::Envelope* message) const {
  const auto arena = arena_of_.find(to);
  if (options_.arena != 0 && arena != arena_of_.end() && arena->second == options_.arena) return;
  const KvMemory& memory = options_.memory;
  const auto crc = [](const std::byte* at, size_t size) {
    return Crc32c(std::span<const std::byte>(at, size));
  };
  if (message->has_chunk_done()) {
    pb::ChunkDone* chunk = message->mutable_chunk_done();
    const size_t encoder_bytes = memory.page_bytes[static_cast<int>(Part::kEncoder)];
    const size_t decoder_bytes = memory.page_bytes[static_cast<int>(Part::kDecoder)];
    for (const PageId page : chunk->encoder_pages()) {
      chunk->add_encoder_crcs(crc(memory.Page(Part::kEncoder, page), encoder_bytes));
    }
    for (const PageId page : chunk->decoder_pages()) {
      chunk->add_decoder_crcs(crc(memory.Page(Part::kDecoder, page), decoder_bytes));
    }
    return;
  }
  pb::PrefillDone* done = message->mutable_prefill_done();
  if (done->state_page() >= 0 && memory.state_bytes > 0) {
    done->set_state_crc(crc(memory.State(done->state_page()), memory.state_bytes));
  }
}

void EngineService::PerformFetch(Instant now, Fetch fetch) {
  if (options_.transfer_delay > Duration::zero()) {
    delayed_.push_back({now + options_.transfer_delay, std::move(fetch)});
    return;
  }
  PostFetch(fetch);
}

void EngineService::PostFetch(const Fetch& fetch) {
  if (!transfer_) {
    refused_.push_back({fetch.id, Reason::kPeerLost});
    return;
  }
  std::vector<kv::CopyOp> ops;
  ops.reserve(fetch.reads.size());
  for (const PageRead& read : fetch.reads) {
    const bool state = read.kind == PageRead::Kind::kState;
    const size_t bytes = state ? options_.memory.state_bytes
                               : options_.memory.page_bytes[static_cast<int>(read.part)];
    if (bytes == 0) continue;
    kv::CopyOp op;
    op.from = fetch.from;
    op.remote_region = state ? kStateRegion
                             : (read.part == Part::kEncoder ? kEncoderRegion : kDecoderRegion);
    op.local_region = op.remote_region;
    op.remote_offset = static_cast<uint64_t>(read.from) * bytes;
    op.local_offset = static_cast<uint64_t>(read.to) * bytes;
    op.bytes = static_cast<uint32_t>(bytes);
    op.crc32c = read.crc;
    ops.push_back(op);
  }
  if (ops.empty()) {
    refused_.push_back({fetch.id, Reason::kOk});
    return;
  }
  const absl::StatusOr<kv::TransferId> id = transfer_->Post(ops, kv::Traffic::kHandover);
  if (!id.ok()) {
    refused_.push_back({fetch.id, ReasonOf(id.status())});
    return;
  }
  fetch_of_[id->value] = fetch.id;
  transfer_of_[fetch.id] = id->value;
}

void EngineService::PollTransfer(Instant now) {
  for (size_t i = 0; i < delayed_.size();) {
    if (delayed_[i].due > now) {
      ++i;
      continue;
    }
    const Fetch fetch = std::move(delayed_[i].fetch);
    delayed_.erase(delayed_.begin() + static_cast<ptrdiff_t>(i));
    PostFetch(fetch);
  }
  std::vector<FetchDone> done = std::exchange(refused_, {});
  if (transfer_) {
    std::vector<kv::Completion> completions;
    transfer_->Poll(&completions);
    for (const kv::Completion& completion : completions) {
      const auto found = fetch_of_.find(completion.id.value);
      if (found == fetch_of_.end()) continue;
      done.push_back({found->second, ReasonOf(completion.status)});
      transfer_of_.erase(found->second);
      fetch_of_.erase(found);
    }
  }
  for (const FetchDone& event : done) Deliver(now, event);
}

void EngineService::PerformTokens() {
  // Rows of one router go out together; the order of its rows is the order of commit.
  std::vector<TokenOut>& rows = actions_.tokens;
  std::stable_sort(rows.begin(), rows.end(), [](const TokenOut& a, const TokenOut& b) {
    return a.key.router < b.key.router;
  });
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    pb::Envelope message;
    pb::Tokens* out = message.mutable_tokens();
    for (; end < rows.size() && rows[end].key.router == rows[begin].key.router; ++end) {
      const TokenOut& row = rows[end];
      pb::TokenRow* to = out->add_rows();
      to->mutable_key()->set_router(row.key.router.value);
      to->mutable_key()->set_request(row.key.request.value);
      to->mutable_key()->set_attempt(row.attempt.value);
      to->set_position(row.position);
      to->set_finish(row.finish);
      for (uint32_t i = 0; i < row.id_count; ++i) {
        to->add_ids(actions_.ids[row.id_offset + i]);
        if (row.score_offset < 0) continue;
        const TokenScore& score = actions_.scores[static_cast<size_t>(row.score_offset) + i];
        pb::TokenLogprob* logprob = to->add_logprobs();
        logprob->set_logprob(score.logprob);
        for (const auto& [id, value] : score.top) {
          logprob->add_top_ids(id);
          logprob->add_top_logprobs(value);
        }
      }
      if (row.reason != Reason::kOk) {
        to->mutable_failure()->set_reason(static_cast<uint32_t>(row.reason));
        to->mutable_failure()->set_message(std::string(InfoOf(row.reason).name));
      }
    }
    SendTo(rows[begin].key.router, message);
    begin = end;
  }
}

void EngineService::Publish(Instant now) {
  if (now - published_at_ < kPublishEvery) return;
  published_at_ = now;
  const EngineState state = options_.core->State();
  busy_.store(state.step_running || state.slots_used > 0 || state.queued > 0,
              std::memory_order_relaxed);
  absl::MutexLock lock(&mu_);
  published_ = state;
  if (transfer_) published_transfer_ = transfer_->Stats();
}

pb::Hello EngineService::MakeHello() const {
  pb::Hello hello;
  hello.set_protocol_min(kProtocol);
  hello.set_protocol_max(kProtocol);
  hello.set_instance(options_.instance.value);
  hello.set_role(KindOf(options_.role));
  hello.set_listen_address(options_.advertised_address);
  *hello.mutable_geometry() = options_.geometry;
  hello.set_arena(options_.arena);
  hello.set_build(options_.build);
  hello.set_name(options_.name);
  if (transfer_) {
    for (std::string& region : transfer_->Descriptors()) hello.add_regions(std::move(region));
  }
  return hello;
}

}  // namespace weir::engine
