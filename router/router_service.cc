// SPDX-License-Identifier: Apache-2.0
#include "router/router_service.h"

#include <utility>
#include <vector>

#include "base/obs/log.h"
#include "base/runtime/clock.h"
#include "base/runtime/descriptors.h"
#include "base/stdx/planted.h"
#include "codec/conversation/json_text.h"
#include "codec/dialect/error_body.h"
#include "router/limits.h"

namespace weir::router {
namespace {

namespace pb = ::weir::v1;

constexpr size_t kPoolQueue = 256;
// After the drain deadline: for error events to reach their clients.
constexpr Duration kDrainGrace = std::chrono::seconds(2);
// For a HelloRefused to reach the engine before its link ends.
constexpr Duration kRefusedGrace = Millis(500);

}  // namespace

void FillDefaults(pb::RouterConfig* config) {
  if (config->http_address().empty()) config->set_http_address("127.0.0.1:8080");
  if (config->peer_address().empty()) config->set_peer_address("127.0.0.1:8081");
  if (config->connections_max() == 0) config->set_connections_max(16384);
  if (config->body_bytes_max() == 0) config->set_body_bytes_max(uint64_t{32} << 20);
  if (config->requests_max() == 0) config->set_requests_max(4096);
  if (config->deadline_ms() == 0) config->set_deadline_ms(600000);
  if (config->attempts_max() == 0) config->set_attempts_max(3);
  if (config->drain_ms() == 0) config->set_drain_ms(30000);
  if (config->silence_ms() == 0) config->set_silence_ms(60000);
}

namespace {

absl::Status ParseAddress(const std::string& address, std::string* host, int* port) {
  const size_t colon = address.rfind(':');
  const std::string digits = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool number = !digits.empty() && digits.size() <= 5 &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoi(digits) > 65535) {
    return Error(Reason::kBadField, "router.http_address '" + address + "' is not HOST:PORT",
                 "router.http_address");
  }
  *port = std::stoi(digits);
  *host = address.substr(0, colon);
  if (host->size() >= 2 && host->front() == '[' && host->back() == ']') {
    *host = host->substr(1, host->size() - 2);
  }
  return absl::OkStatus();
}

Reason ReasonOfHttp(int status) {
  switch (status) {
    case 413:
    case 431:
      return Reason::kTooLarge;
    case 408:
    case 504:
      return Reason::kDeadline;
    case 503:
      return Reason::kQueueFull;
    case 501:  // these two are the client's doing
    case 505:
      return Reason::kBadField;
    default:
      return status >= 500 ? Reason::kBug : Reason::kBadField;
  }
}

std::string ServerErrorBody(int status, std::string_view message) {
  std::string body;
  codec::AppendErrorBody(Error(ReasonOfHttp(status), message), codec::ErrorShape::kOpenAi, {},
                         &body);
  return body;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RouterService>> RouterService::Create(
    RouterServiceOptions options) {
  std::unique_ptr<RouterService> service(new RouterService(std::move(options)));
  WEIR_TRY(service->Open());
  return service;
}

RouterService::RouterService(RouterServiceOptions options)
    : options_(std::move(options)),
      loop_({.name = "router",
             .on_stall = [this](std::string_view, std::string_view callback, Duration took) {
               WarnOfStall(callback, took);
             }}) {
  FillDefaults(&options_.config);
  if (options_.listen_address.empty()) options_.listen_address = options_.config.peer_address();
}

absl::Status RouterService::Open() {
  const pb::RouterConfig& config = options_.config;
  HttpServerOptions http;
  WEIR_TRY(ParseAddress(config.http_address(), &http.listen_host, &http.listen_port));
  pool_ = std::make_unique<Pool>(std::max(options_.pool_threads, 1), kPoolQueue);
  RouterCore::Config core;
  core.self = options_.instance;
  core.seed = options_.seed;
  core.requests_max = config.requests_max();
  core.attempts_max = config.attempts_max();
  core.cache_secret = config.cache_secret();
  core.deadline = Millis(config.deadline_ms());
  dispatcher_ = std::make_unique<Dispatcher>(
      core, [this](InstanceId to, const pb::Envelope& message) { SendTo(to, message); },
      [this] { Settled(); });

  HttpFront::Options front;
  front.model = options_.model;
  front.limits.body_bytes_max = config.body_bytes_max();
  // Each choice is a request; what can never be taken is not worth another try.
  front.limits.n_max = static_cast<int>(
      std::min<uint64_t>(config.requests_max(), static_cast<uint64_t>(front.limits.n_max)));
  front.api_keys.assign(config.api_keys().begin(), config.api_keys().end());
  front.seed = options_.seed;
  front.pool = pool_.get();
  front.backend = dispatcher_.get();
  front.answer_admin = [this](const HttpRequest& request, HttpResponder* responder) {
    return AnswerAdmin(request, responder,
                       {options_.metrics, options_.watch, [this] { return StateJson(); }});
  };
  front.on_first_token = [this](double seconds) {
    if (first_token_) first_token_->Observe(seconds);
  };
  front.trace = options_.trace;
  front.spans = options_.spans;
  front.sample_per_mille = options_.sample_per_mille;
  front.instance = options_.instance.value;
  front_ = std::make_unique<HttpFront>(std::move(front));
  dispatcher_->SetFront(front_.get());

  http.tls_certificate_file = config.tls_certificate();
  http.tls_key_file = config.tls_key();
  const uint64_t descriptors = RaiseDescriptorLimit();
  const uint32_t connections = ConnectionsWithin(descriptors, config.connections_max());
  if (connections < config.connections_max()) {
    Log(LogLevel::kWarn, "fewer connections than router.connections_max: too few descriptors",
        {{"connections_max", connections}, {"descriptors", descriptors}});
  }
  http.max_connections = static_cast<int>(connections);
  http.on_accept_failed = [this](std::string_view why) {
    Log(LogLevel::kWarn, "connections cannot be accepted",
        {{"why", why}, {"open", server_->stats().connections.load()}});
  };
  http.body_bytes_max = config.body_bytes_max();
  http.slow_client_timeout = kSlowClient;
  http.error_body = ServerErrorBody;
  const auto handle = [this](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    front_->Handle(std::move(request), std::move(responder));
  };
  WEIR_ASSIGN(server_, HttpServer::Create(std::move(http), {&loop_}, handle));
  Channel::Options channel;
  channel.listen_address = options_.listen_address;
  channel.loop = &loop_;
  WEIR_ASSIGN(channel_, options_.make_channel(std::move(channel), this));
  WEIR_TRY(OpenNative());
  if (options_.metrics != nullptr) AddMetrics();
  if (options_.watch != nullptr) AddConditions();
  return absl::OkStatus();
}

absl::Status RouterService::OpenNative() {
  const pb::RouterConfig& config = options_.config;
  if (config.grpc_address().empty()) return absl::OkStatus();
  if (!options_.make_native_front) {
    return Error(Reason::kBadField, "router.grpc_address: this program has no gRPC",
                 "router.grpc_address");
  }
  NativeFrontOptions native;
  native.address = config.grpc_address();
  native.tls_certificate_file = config.tls_certificate();
  native.tls_key_file = config.tls_key();
  native.message_bytes_max = config.body_bytes_max();
  native.slow_client = kSlowClient;
  native.loop = &loop_;
  native.front = front_.get();
  WEIR_ASSIGN(native_, options_.make_native_front(std::move(native)));
  return absl::OkStatus();
}

RouterService::~RouterService() { Stop(); }

void RouterService::Start() {
  started_ = true;
  loop_.Post("router start", [this] {
    KeepAliveTurn();
    SilenceTurn();
  });
  loop_.Start();
}

void RouterService::Stop() {
  if (std::exchange(stopped_, true)) return;
  draining_ = true;
  if (server_) server_->Shutdown();
  if (native_) native_->Shutdown();
  if (pool_) pool_->Close();
  if (channel_) channel_->Shutdown();
  if (!started_) return;
  loop_.Stop();
  loop_.Join();
}

void RouterService::Drain(Instant deadline, Task drained) {
  draining_ = true;
  if (native_) native_->SetServing(false);
  loop_.Post("drain", [this, deadline, drained = std::move(drained)]() mutable {
    drained_ = std::move(drained);
    failed_before_drain_ = dispatcher_->core().state().failed;
    dispatcher_->Enqueue(DrainRequested{deadline});
    front_->Drain([this] {
      // Connections whose answer is through may still have bytes to send.
      loop_.Post("front drained", [this] {
        server_->Drain([this] { loop_.Post("server drained", [this] { FinishDrain(); }); });
      });
    });
    loop_.At("drain deadline", deadline + kDrainGrace, [this] { FinishDrain(); });
  });
}

void RouterService::FinishDrain() {
  Task drained = std::exchange(drained_, nullptr);
  if (!drained) return;
  const uint64_t failed = dispatcher_->core().state().failed - failed_before_drain_;
  if (failed > 0) Log(LogLevel::kWarn, "the drain cut answers off", {{"answers", failed}});
  drained();
}

void RouterService::Reload(const pb::RouterConfig& config) {
  pb::RouterConfig filled = config;
  FillDefaults(&filled);
  loop_.Post("reload", [this, filled] {
    dispatcher_->core().SetTunables(filled.attempts_max(), Millis(filled.deadline_ms()));
    front_->SetApiKeys({filled.api_keys().begin(), filled.api_keys().end()});
  });
}

void RouterService::OnUp(PeerId peer, std::string_view) {
  links_[peer] = Link{};
  pb::Envelope message;
  pb::Hello* hello = message.mutable_hello();
  hello->set_protocol_min(kProtocolMin);
  hello->set_protocol_max(kProtocolMax);
  hello->set_instance(options_.instance.value);
  hello->set_role(pb::ROLE_KIND_ROUTER);
  hello->set_build(options_.build);
  hello->set_name(options_.name);
  if (!channel_->Send(peer, message.SerializeAsString())) CloseSoon(peer);
  loop_.After("hello wait", kHelloWait, [this, peer] {
    const auto found = links_.find(peer);
    if (found == links_.end() || found->second.instance.value != 0) return;
    Refuse(peer, Error(Reason::kDeadline, "no Hello came in time"));
  });
}

void RouterService::OnDown(PeerId peer, const absl::Status& why) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  const InstanceId instance = found->second.instance;
  links_.erase(found);
  const auto current = peer_of_.find(instance);
  if (current == peer_of_.end() || current->second != peer) return;
  peer_of_.erase(current);
  LogLeaving(instance, why);
  dispatcher_->Enqueue(PeerDown{instance});
}

bool RouterService::OnMessage(PeerId peer, std::string&& bytes) {
  const auto found = links_.find(peer);
  if (found == links_.end() || found->second.refused) return true;
  found->second.heard = Now();
  if (!incoming_.ParseFromString(bytes)) {
    Refuse(peer, Error(Reason::kBadField, "a message is not of this protocol"));
    return true;
  }
  if (incoming_.has_hello()) {
    OnHello(peer, incoming_.hello());
  } else if (incoming_.has_hello_refused()) {
    Log(LogLevel::kWarn, "an engine refused this router",
        {{"why", incoming_.hello_refused().failure().message()}});
    CloseSoon(peer);
  } else if (found->second.instance.value != 0) {
    dispatcher_->Feed(Received{found->second.instance, incoming_});
  } else {
    Refuse(peer, Error(Reason::kBadField, "the first message must be Hello"));
  }
  return true;
}

void RouterService::OnHello(PeerId peer, const pb::Hello& hello) {
  if (absl::Status status = CheckProtocol(hello); !status.ok()) {
    Refuse(peer, status);
    return;
  }
  const InstanceId instance{hello.instance()};
  if (links_[peer].instance.value != 0) {
    // One link, one instance: the others would outlive it.
    Refuse(peer, Error(Reason::kBadField, "Hello was said already"));
    return;
  }
  if (const auto old = peer_of_.find(instance); old != peer_of_.end() && old->second != peer) {
    // The engine dialled again before we noticed that its old link is dead.
    WEIR_REACHED("router service: engine came back on another link");
    links_.erase(old->second);
    channel_->Close(old->second);
  }
  links_[peer].instance = instance;
  peer_of_[instance] = peer;
  dispatcher_->Feed(PeerUp{instance, hello});
  const InstanceView* view = dispatcher_->fleet().view().Find(instance);
  if (view == nullptr) return;  // refused: SendTo has said so
  Log(LogLevel::kInfo, "engine registers",
      {{"role", NameOf(view->role)},
       {"address", view->address},
       {"instance", instance.value},
       {"build", hello.build()}});
}

void RouterService::LogLeaving(InstanceId instance, const absl::Status& why) const {
  const InstanceView* view = dispatcher_->fleet().view().Find(instance);
  if (view == nullptr) return;
  if (view->health == Health::kDraining) {
    Log(LogLevel::kInfo, "engine left",
        {{"role", NameOf(view->role)},
         {"address", view->address},
         {"instance", instance.value},
         {"drained", "true"}});
    return;
  }
  Log(LogLevel::kWarn, "engine lost",
      {{"role", NameOf(view->role)},
       {"address", view->address},
       {"instance", instance.value},
       {"why", why}});
}

void RouterService::WarnOfStall(std::string_view callback, Duration took) {
  const std::optional<StallDigest::Summary> summary = stalls_.Add(Now(), took);
  if (!summary) return;
  Log(LogLevel::kWarn, "callbacks held the router's loop up",
      {{"count", summary->count},
       {"max_ms", static_cast<int64_t>(summary->max / Millis(1))},
       {"last", callback}});
}

void RouterService::Refuse(PeerId peer, const absl::Status& why) {
  pb::Envelope message;
  pb::Failure* failure = message.mutable_hello_refused()->mutable_failure();
  failure->set_reason(static_cast<uint32_t>(ReasonOf(why)));
  failure->set_message(std::string(why.message()));
  failure->set_param(ParamOf(why));
  Log(LogLevel::kWarn, "peer refused", {{"why", why}});
  (void)channel_->Send(peer, message.SerializeAsString());
  CloseSoon(peer);
}

// Ends a link after what was sent had time to leave; nothing more of it is heard.
void RouterService::CloseSoon(PeerId peer) {
  const auto found = links_.find(peer);
  if (found == links_.end() || std::exchange(found->second.refused, true)) return;
  const auto current = peer_of_.find(found->second.instance);
  if (current != peer_of_.end() && current->second == peer) {
    const InstanceId instance = current->first;
    peer_of_.erase(current);
    LogLeaving(instance, Error(Reason::kPeerLost, "the router ended its link"));
    dispatcher_->Enqueue(PeerDown{instance});
  }
  loop_.After("close link", kRefusedGrace, [this, peer] {
    links_.erase(peer);
    channel_->Close(peer);
  });
}

void RouterService::SendTo(InstanceId to, const pb::Envelope& message) {
  const auto found = peer_of_.find(to);
  if (found == peer_of_.end()) return;
  const PeerId peer = found->second;
  if (!channel_->Send(peer, message.SerializeAsString())) {
    // Order is the contract: a link that lost one message is of no more use.
    WEIR_REACHED("router service: link takes no more");
    CloseSoon(peer);
    return;
  }
  if (message.has_hello_refused()) {
    Log(LogLevel::kWarn, "engine refused",
        {{"instance", to.value}, {"why", message.hello_refused().failure().message()}});
    CloseSoon(peer);
  }
}

void RouterService::Settled() {
  const FleetView& fleet = dispatcher_->fleet().view();
  if (fleet.version() != fleet_seen_) {
    fleet_seen_ = fleet.version();
    complete_ = fleet.WhyNone(Role::kPrefill).empty() && fleet.WhyNone(Role::kDecode).empty();
  }
  ArmTimer();
}

void RouterService::ArmTimer() {
  const Instant next = dispatcher_->NextDeadline();
  if (next == armed_) return;
  if (timer_ != 0) loop_.Cancel(timer_);
  timer_ = 0;
  armed_ = next;
  if (next == kNever) return;
  timer_ = loop_.At("router tick", next, [this] {
    timer_ = 0;
    armed_ = kNever;
    dispatcher_->TickIfDue(Now());
    ArmTimer();
  });
}

void RouterService::KeepAliveTurn() {
  front_->KeepAlive(Now());
  loop_.After("keep alive", kKeepAliveEvery, [this] { KeepAliveTurn(); });
}

// A link can live while the step thread behind it hangs: reports come from that thread, every second.
void RouterService::SilenceTurn() {
  const Duration silence = Millis(options_.config.silence_ms());
  const Instant since = Now() - silence;
  std::vector<PeerId> silent;
  for (const auto& [peer, link] : links_) {
    if (link.instance.value != 0 && !link.refused && link.heard < since) silent.push_back(peer);
  }
  for (const PeerId peer : silent) {
    WEIR_REACHED("router service: engine went silent");
    Refuse(peer, Error(Reason::kDeadline, "the engine reported nothing for " +
                                              std::to_string(options_.config.silence_ms()) + " ms"));
  }
  loop_.After("silence", silence / 4, [this] { SilenceTurn(); });
}

void RouterService::AddConditions() {
  options_.watch->Require([this]() -> std::string {
    if (draining_ && !IsPlanted(Planted::kReadyLies)) return "the router is draining";
    if (complete_) return "";
    const FleetView& fleet = dispatcher_->fleet().view();
    const std::string why = fleet.WhyNone(Role::kDecode);
    return why.empty() ? fleet.WhyNone(Role::kPrefill) : why;
  });
}

void RouterService::AddMetrics() {
  Metrics& m = *options_.metrics;
  struct Sum {
    Metrics::Counter counter;
    uint64_t RouterState::*field;
  };
  std::vector<Sum> sums;
  const auto outcome = [&](const char* name, uint64_t RouterState::*field) {
    sums.push_back({m.AddCounter("weir_router_requests_total", "Requests by how they ended",
                                 {{"outcome", name}}),
                    field});
  };
  outcome("succeeded", &RouterState::succeeded);
  outcome("failed", &RouterState::failed);
  outcome("cancelled", &RouterState::cancelled);
  outcome("refused", &RouterState::refused);
  const auto sum = [&](const char* name, const char* help, uint64_t RouterState::*field) {
    sums.push_back({m.AddCounter(name, help), field});
  };
  sum("weir_router_attempts_total", "Attempts started", &RouterState::attempts);
  sum("weir_router_losses_total", "Attempts that failed", &RouterState::losses);
  sum("weir_router_preemptions_total", "Attempts pushed out of memory", &RouterState::preemptions);
  sum("weir_router_tokens_total", "Answer tokens accepted", &RouterState::tokens_taken);
  sum("weir_router_stale_tokens_total", "Tokens of old attempts", &RouterState::tokens_stale);
  sum("weir_router_orphan_messages_total", "Messages about nothing known", &RouterState::orphans);
  sum("weir_router_refused_engines_total", "Engines that did not fit",
      &RouterState::hellos_refused);
  auto requests = m.AddGauge("weir_router_requests", "Requests alive");
  auto waiting = m.AddGauge("weir_router_requests_waiting", "Of these, waiting for an engine");
  auto tokens = m.AddGauge("weir_router_journal_tokens", "Tokens in journals");
  auto prefills = m.AddGauge("weir_router_instances", "Engines registered", {{"role", "prefill"}});
  auto decodes = m.AddGauge("weir_router_instances", "Engines registered", {{"role", "decode"}});
  auto connections = m.AddGauge("weir_router_connections", "Open connections of clients");
  auto unaccepted = m.AddCounter("weir_router_accept_failures_total",
                                 "Tries to accept a connection that failed for want of descriptors");
  auto reused = m.AddCounter("weir_router_prompt_ids_reused_total",
                             "Prompt tokens known from earlier prompts and answers");
  auto encoded = m.AddCounter("weir_router_prompt_ids_encoded_total",
                              "Prompt tokens tokenized anew");
  auto draining = m.AddGauge("weir_router_draining", "1 while a drain is under way");
  first_token_ = m.AddHistogram("weir_router_first_token_seconds",
                                "From the whole request to its first token",
                                {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100});
  m.OnScrape([=, this]() mutable {
    const RouterState state = dispatcher_->core().state();
    for (Sum& s : sums) s.counter.MoveTo(static_cast<double>(state.*s.field));
    requests.Set(state.requests);
    waiting.Set(state.queued);
    tokens.Set(static_cast<double>(state.journal_tokens));
    prefills.Set(state.prefill_instances);
    decodes.Set(state.decode_instances);
    connections.Set(static_cast<double>(server_->stats().connections.load()));
    unaccepted.MoveTo(static_cast<double>(server_->stats().accept_failures.load()));
    const codec::PromptHistory::Counters history = front_->history().counters();
    reused.MoveTo(static_cast<double>(history.reused_ids));
    encoded.MoveTo(static_cast<double>(history.encoded_ids));
    draining.Set(draining_ ? 1 : 0);
  });
}

std::string RouterService::StateJson() const {
  const RouterState state = dispatcher_->core().state();
  std::string out = "{\"router\":{";
  const auto number = [&out](std::string_view name, uint64_t value) {
    if (out.back() != '{') out += ',';
    out += '"';
    out += name;
    out += "\":" + std::to_string(value);
  };
  number("requests", state.requests);
  number("queued", state.queued);
  number("journals", state.journals);
  number("journal_tokens", state.journal_tokens);
  number("connections", static_cast<uint64_t>(server_->stats().connections.load()));
  number("connections_streaming", front_->answers());
  number("submitted", state.submitted);
  number("succeeded", state.succeeded);
  number("failed", state.failed);
  number("cancelled", state.cancelled);
  number("refused", state.refused);
  number("attempts", state.attempts);
  number("losses", state.losses);
  number("preemptions", state.preemptions);
  number("tokens_taken", state.tokens_taken);
  number("tokens_stale", state.tokens_stale);
  number("orphans", state.orphans);
  number("rejected", front_->counters().rejected);
  out += ",\"draining\":";
  out += draining_ ? "true" : "false";
  out += ",\"instances\":[";
  for (const InstanceView& instance : dispatcher_->fleet().view().instances()) {
    if (out.back() == '}') out += ',';
    out += "{\"role\":\"" + std::string(NameOf(instance.role)) + "\",\"name\":";
    codec::AppendJsonString(instance.name, &out);
    out += ",\"address\":";
    codec::AppendJsonString(instance.address, &out);
    out += ",\"instance\":\"" + std::to_string(instance.id.value) + "\",\"draining\":";
    out += instance.health == Health::kDraining ? "true" : "false";
    // As last reported; its own /debug/state is the truth.
    number("reported_slots", instance.load.slots_used);
    number("reported_queue", instance.load.queued);
    out += '}';
  }
  out += "]}";
  if (options_.more_state) {
    if (const std::string more = options_.more_state(); !more.empty()) out += ',' + more;
  }
  return out + "}";
}

}  // namespace weir::router
