// SPDX-License-Identifier: Apache-2.0
#include "engine/run/engine_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/runtime/clock.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "base/stdx/units.h"
#include "engine/run/copy_within.h"
#include "engine/run/hello.h"

namespace weir::engine {
namespace {

constexpr size_t kInboxPerStep = 1024;     // what one turn takes in before it looks at the device
constexpr size_t kInboxBytesMax = size_t{256} << 20;  // then messages wait in their links
constexpr size_t kDialsMax = 256;          // engines dialled that have not said Hello yet
constexpr Duration kIdleWaitMax = Millis(50);
constexpr Duration kPublishEvery = Millis(50);

int64_t MicrosOf(Instant instant) { return instant.time_since_epoch().count() / 1000; }

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
  PushSurely(std::move(item));
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

// A full inbox empties within a turn.
void EngineService::PushSurely(Item item) {
  while (!inbox_.TryPush(std::move(item)) && !inbox_.closed()) std::this_thread::yield();
}

// ---- the channel's thread

void EngineService::OnUp(PeerId peer, std::string_view address) {
  Item item;
  item.kind = Item::Kind::kUp;
  item.peer = peer;
  item.address = std::string(address);
  PushSurely(std::move(item));
}

void EngineService::OnDown(PeerId peer, const absl::Status&) {
  Item item;
  item.kind = Item::Kind::kDown;
  item.peer = peer;
  PushSurely(std::move(item));
}

bool EngineService::OnMessage(PeerId peer, std::string&& bytes) {
  // Full: offered again, and the peer's queue backs up.
  if (inbox_bytes_.load(std::memory_order_relaxed) > kInboxBytesMax) return false;
  const size_t size = bytes.size();
  Item item;
  item.kind = Item::Kind::kMessage;
  item.peer = peer;
  item.bytes = size;
  item.message = std::make_unique<pb::Envelope>();
  if (!item.message->ParseFromString(bytes)) item.kind = Item::Kind::kNonsense;
  inbox_bytes_.fetch_add(size, std::memory_order_relaxed);
  if (inbox_.TryPush(std::move(item))) return true;
  inbox_bytes_.fetch_sub(size, std::memory_order_relaxed);
  return false;
}

// ---- the step thread

void EngineService::Run() {
  for (const std::string& router : options_.routers) DialRouter(router);
  std::vector<Item> batch;
  while (!stopping_) {
    batch.clear();
    if (launched_ != nullptr) {
      inbox_.PopSome(kInboxPerStep, &batch);
    } else {
      inbox_.WaitSome(kInboxPerStep, IdleWait(Now()), &batch);
    }
    const Instant now = Now();
    for (Item& item : batch) {
      Handle(now, item);
      inbox_bytes_.fetch_sub(item.bytes, std::memory_order_relaxed);
    }
    PollTransfer(now);
    CheckDials(now);
    if (options_.core->NextDeadline() <= now) Deliver(now, Tick{});
    if (launched_ != nullptr) RunStep(now);
    Publish(Now());
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
}

void EngineService::DialRouter(std::string address) {
  const PeerId id = channel_->Dial(address);
  Peer& peer = peers_[id.value];
  peer.id = id;
  peer.router = std::move(address);
}

Duration EngineService::IdleWait(Instant now) const {
  if (!answered_.empty() || !refused_peers_.empty() || !refused_dials_.empty()) {
    return Duration::zero();
  }
  Instant until = std::min(options_.core->NextDeadline(), now + kIdleWaitMax);
  for (const DelayedFetch& delayed : delayed_) until = std::min(until, delayed.due);
  return std::max(until - now, Duration::zero());
}

void EngineService::RunStep(Instant now) {
  const StepPlan* plan = std::exchange(launched_, nullptr);
  options_.model->Launch(*plan);
  const bool complete = options_.model->Collect(plan->step, /*wait=*/true, &result_);
  WEIR_CHECK(complete);
  if (options_.trace) TraceStepDone(*plan, now, Now());
  Deliver(Now(), StepDone{result_});
}

void EngineService::TraceStepDone(const StepPlan& plan, Instant begun, Instant done) const {
  TraceStep row;
  row.step = static_cast<int64_t>(plan.step.value);
  row.engine = static_cast<int64_t>(options_.instance.value >> 1);  // fits a signed id
  row.epoch = plan.epoch.value;
  row.role = options_.role == Role::kPrefill ? "prefill" : "decode";
  row.t0 = MicrosOf(begun);
  row.t1 = MicrosOf(done);
  row.n_req = static_cast<int64_t>(plan.rows.size());
  for (const StepRow& group : plan.rows) {
    (group.kind == RowKind::kVerify ? row.n_rows_verify : row.n_rows_ctx) += group.count;
  }
  row.tokens_emitted = static_cast<int64_t>(result_.tokens.size());
  Trace(options_.trace, row);
}

void EngineService::TraceFetchDone(const FetchTrace& fetch, Instant now) const {
  TraceIo row;
  row.kind = "pd_kv";
  row.path = "de";
  row.node_src = static_cast<int64_t>(fetch.from.value >> 1);
  row.node_dst = static_cast<int64_t>(options_.instance.value >> 1);
  row.bytes_useful = fetch.bytes;
  row.bytes_wire = fetch.bytes;
  row.t_submit = MicrosOf(fetch.begun);
  row.t_begin = row.t_submit;
  row.t_end = MicrosOf(now);
  row.high_class = true;
  Trace(options_.trace, row);
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
      if (peer.hello_deadline == kNever) peer.hello_deadline = now + options_.dial_timeout;
      pb::Envelope hello;
      *hello.mutable_hello() = MakeHello();
      if (!channel_->Send(item.peer, hello.SerializeAsString())) LosePeer(now, item.peer);
      return;
    }
    case Item::Kind::kDown:
      LosePeer(now, item.peer, LinkEnd::kByChannel);
      return;
    case Item::Kind::kNonsense:
      WEIR_REACHED("engine: message of another protocol");
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
  if (message.has_hello_refused()) {
    if (!peer.router.empty()) ++refusals_[peer.router];
    Log(LogLevel::kWarn, "a peer refused this engine",
        {{"peer", peer.router},
         {"why", message.hello_refused().failure().message()},
         {"next_try_s", Seconds(RedialPause(peer.router))}});
    LosePeer(now, from);
    return;
  }
  if (peer.instance.value == 0) {
    WEIR_REACHED("engine: words before Hello");
    LosePeer(now, from);
    return;
  }
  if (!refusals_.empty() && refusals_.erase(peer.router) > 0) LogRouter("router connected", peer);
  Deliver(now, Received{peer.instance, message});
}

void EngineService::LogRouter(const char* what, const Peer& router) const {
  Log(LogLevel::kInfo, what, {{"engine", options_.name}, {"address", router.router}});
}

// A refusal is a matter of configuration: it stays, and is not worth a line every second.
Duration EngineService::RedialPause(const std::string& router) const {
  const auto found = refusals_.find(router);
  if (found == refusals_.end()) return options_.redial_after;
  const int64_t doublings = std::min<uint32_t>(found->second - 1, 16);
  return std::min(options_.redial_after * (int64_t{1} << doublings), options_.redial_max);
}

void EngineService::HandleHello(Instant now, Peer& peer, const pb::Hello& hello) {
  if (peer.instance.value != 0) return;  // said already
  absl::Status status = CheckHello(hello, options_.instance, options_.geometry);
  const InstanceId instance(hello.instance());
  if (status.ok() && peer.dialled_for.value != 0 && peer.dialled_for != instance) {
    status = Error(Reason::kPeerLost, "another instance answers at this address now");
  }
  if (status.ok() && peer_of_.contains(instance)) {
    status = Error(Reason::kStaleEpoch, "this instance has a link already");
  }
  const Role role = RoleOf(hello.role());
  if (status.ok() && transfer_ && role != Role::kRouter && hello.regions_size() > 0) {
    const std::vector<std::string> regions(hello.regions().begin(), hello.regions().end());
    status = transfer_->AddRemote(instance, regions);
  }
  if (!status.ok()) {
    Log(LogLevel::kWarn, "peer refused", {{"name", hello.name()}, {"why", status}});
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
  peer.role = role;
  peer.hello_deadline = kNever;
  peer_of_[instance] = peer.id;
  arena_of_[instance] = hello.arena();
  if (peer.role == Role::kRouter) {
    routers_up_.fetch_add(1, std::memory_order_relaxed);
    if (!refusals_.contains(peer.router)) LogRouter("router connected", peer);
  }
  Deliver(now, PeerUp{instance, peer.role, hello.arena()});
}

void EngineService::LosePeer(Instant now, PeerId id, LinkEnd end) {
  const auto found = peers_.find(id.value);
  if (found == peers_.end()) return;
  const Peer lost = std::move(found->second);
  if (!lost.router.empty() && end == LinkEnd::kByChannel) {
    // It comes up again under its id, maybe as another instance.
    found->second = Peer();
    found->second.id = id;
    found->second.router = lost.router;
  } else {
    peers_.erase(found);
    channel_->Close(id);
    if (!lost.router.empty()) redials_.push_back({now + RedialPause(lost.router), lost.router});
  }
  if (lost.instance.value != 0 && lost.role == Role::kRouter) {
    routers_up_.fetch_sub(1, std::memory_order_relaxed);
    if (!refusals_.contains(lost.router)) LogRouter("router lost; it is dialled again", lost);
  }
  const InstanceId instance = lost.instance.value != 0 ? lost.instance : lost.dialled_for;
  if (instance.value == 0) return;
  if (const auto link = peer_of_.find(instance); link != peer_of_.end()) {
    if (link->second != id) return;  // it has another link
    peer_of_.erase(link);
  }
  arena_of_.erase(instance);
  if (transfer_) transfer_->RemoveRemote(instance);
  Deliver(now, PeerDown{instance});
}

void EngineService::CheckDials(Instant now) {
  std::vector<PeerId> late = std::exchange(refused_peers_, {});
  for (const auto& [id, peer] : peers_) {
    if (peer.hello_deadline <= now) late.push_back(peer.id);
  }
  for (const PeerId id : late) LosePeer(now, id);
  for (const InstanceId instance : std::exchange(refused_dials_, {})) {
    if (!peer_of_.contains(instance)) Deliver(now, PeerDown{instance});
  }
  for (size_t i = 0; i < redials_.size();) {
    if (redials_[i].due > now) {
      ++i;
      continue;
    }
    DialRouter(std::move(redials_[i].router));
    redials_.erase(redials_.begin() + static_cast<ptrdiff_t>(i));
  }
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
      answered_.push_back({fetch, Reason::kCancelled});
      delayed_.erase(delayed);
    } else if (const auto found = transfer_of_.find(fetch); found != transfer_of_.end()) {
      transfer_->Cancel(kv::TransferId(found->second));
    }
  }
  if (!actions_.tokens.empty()) PerformTokens();
  RecordAll(actions_.spans, options_.role == Role::kPrefill ? "prefill" : "decode",
            options_.instance.value, options_.spans);
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
  size_t dials = 0;
  for (const auto& [id, peer] : peers_) {
    if (peer.dialled_for == dial.instance) return;
    dials += peer.dialled_for.value != 0 && peer.instance.value == 0 ? 1 : 0;
  }
  if (dials >= kDialsMax) {
    WEIR_REACHED("engine: too many dials at once");
    refused_dials_.push_back(dial.instance);
    return;
  }
  const PeerId id = channel_->Dial(dial.address);
  Peer& peer = peers_[id.value];
  peer.id = id;
  peer.dialled_for = dial.instance;
  peer.hello_deadline = now + options_.dial_timeout;
}

void EngineService::PerformSend(EngineActions::Send& send) {
  AddChecksums(send.to, &send.message);
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
  const auto add_pages = [&](auto* offer) {
    for (const PageId page : offer->encoder_pages()) {
      offer->add_encoder_crcs(crc(memory.Page(Part::kEncoder, page), memory.page_bytes[0]));
    }
    for (const PageId page : offer->decoder_pages()) {
      offer->add_decoder_crcs(crc(memory.Page(Part::kDecoder, page), memory.page_bytes[1]));
    }
  };
  const auto add_state = [&](auto* offer) {
    if (offer->state_page() < 0 || memory.state_bytes == 0) return;
    offer->set_state_crc(crc(memory.State(offer->state_page()), memory.state_bytes));
  };
  switch (message->body_case()) {
    case pb::Envelope::kChunkDone: return add_pages(message->mutable_chunk_done());
    case pb::Envelope::kPrefillDone: return add_state(message->mutable_prefill_done());
    case pb::Envelope::kKeepOffer:
      add_pages(message->mutable_keep_offer());
      return add_state(message->mutable_keep_offer());
    default: return;
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
  const auto arena = arena_of_.find(fetch.from);
  if (options_.arena != 0 && arena != arena_of_.end() && arena->second == options_.arena) {
    answered_.push_back({fetch.id, CopyWithin(options_.memory, fetch)});
    return;
  }
  if (!transfer_) {
    answered_.push_back({fetch.id, Reason::kPeerLost});
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
    answered_.push_back({fetch.id, Reason::kOk});
    return;
  }
  const absl::StatusOr<kv::TransferId> id = transfer_->Post(ops, kv::Traffic::kHandover);
  if (!id.ok()) {
    answered_.push_back({fetch.id, ReasonOf(id.status())});
    return;
  }
  int64_t bytes = 0;
  for (const kv::CopyOp& op : ops) bytes += op.bytes;
  fetch_of_[id->value] = {fetch.id, fetch.from, Now(), bytes};
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
  std::vector<FetchDone> done = std::exchange(answered_, {});
  if (transfer_) {
    std::vector<kv::Completion> completions;
    transfer_->Poll(&completions);
    for (const kv::Completion& completion : completions) {
      const auto found = fetch_of_.find(completion.id.value);
      if (found == fetch_of_.end()) continue;
      done.push_back({found->second.fetch, ReasonOf(completion.status)});
      if (options_.trace) TraceFetchDone(found->second, now);
      transfer_of_.erase(found->second.fetch);
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
      to->set_cached_tokens(row.cached_tokens);
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
