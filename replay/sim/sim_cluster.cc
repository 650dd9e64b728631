// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/sim_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/check.h"

namespace weir::sim {

SimCluster::SimCluster(const ClusterConfig& config)
    : config_(config),
      random_(config.seed, 23),
      net_(&clock_, config.seed, config.net),
      transfer_(&clock_, config.seed, config.transfer),
      loaded_(engine::MakeHashModel(config.model)) {
  WEIR_CHECK(engine::ValidateHashConfig(config.model).ok());
  WEIR_CHECK(!config.paired || config.prefill == config.decode);
  for (uint32_t i = 0; i < config.routers; ++i) seats_.push_back({Role::kRouter, i, {}});
  for (uint32_t i = 0; i < config.prefill; ++i) seats_.push_back({Role::kPrefill, i, {}});
  for (uint32_t i = 0; i < config.decode; ++i) seats_.push_back({Role::kDecode, i, {}});
  Heal();
}

SimCluster::~SimCluster() = default;

bool SimCluster::Step() { return violation_.empty() && clock_.RunNext() && violation_.empty(); }

bool SimCluster::RunFor(Duration duration) {
  const Instant end = now() + duration;
  clock_.At(end, [] {});
  while (violation_.empty() && clock_.next() <= end) clock_.RunNext();
  return violation_.empty();
}

bool SimCluster::RunUntil(const std::function<bool()>& done, Duration limit) {
  const Instant end = now() + limit;
  clock_.At(end, [] {});
  while (!done()) {
    if (!violation_.empty() || clock_.next() > end) return false;
    clock_.RunNext();
  }
  return violation_.empty();
}

ClientId SimCluster::Submit(RequestSpec spec) {
  const auto id = static_cast<ClientId>(clients_.size());
  ClientRecord& record = *clients_.emplace_back(std::make_unique<ClientRecord>());
  if (spec.prompt.empty()) {
    Random common(config_.seed, 999);
    while (spec.prompt.size() < std::min(spec.common_tokens, spec.prompt_tokens)) {
      spec.prompt.push_back(static_cast<TokenId>(common.Below(config_.model.vocab)));
    }
    Random words(config_.seed, 1000 + id);
    while (spec.prompt.size() < spec.prompt_tokens) {
      spec.prompt.push_back(static_cast<TokenId>(words.Below(config_.model.vocab)));
    }
  }
  record.spec = std::move(spec);
  record.submitted = now();
  record.request = RequestId(next_request_++);
  const auto prompt = static_cast<Position>(record.spec.prompt.size());
  const Position tail = config_.model.decoder_tail_rows;
  record.tail_start = prompt > tail ? prompt - tail : 0;
  const std::vector<InstanceId> routers = Alive(Role::kRouter);
  if (routers.empty()) {
    record.router_lost = true;
    return id;
  }
  record.router = routers[record.spec.router % routers.size()];
  client_of_[{record.router, record.request}] = id;

  router::Submit submit;
  submit.request = record.request;
  submit.prompt = record.spec.prompt;
  submit.new_tokens_max = record.spec.new_tokens_max;
  submit.deadline = record.spec.deadline;
  submit.domain.account = record.spec.tenant;
  pb::Sampling& sampling = submit.sampling;
  sampling.set_temperature(record.spec.temperature);
  sampling.set_seed(record.spec.sampling_seed);
  sampling.set_min_tokens(record.spec.min_tokens);
  sampling.set_logprobs(record.spec.top_logprobs > 0);
  sampling.set_top_logprobs(record.spec.top_logprobs);
  sampling.set_repetition_penalty(record.spec.repetition_penalty);
  sampling.set_frequency_penalty(record.spec.frequency_penalty);
  sampling.set_presence_penalty(record.spec.presence_penalty);
  sampling.set_min_p(record.spec.min_p);
  for (const auto& [token, bias] : record.spec.logit_bias) {
    pb::LogitBias* entry = sampling.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  for (const TokenId token : record.spec.stop_tokens) sampling.add_stop_tokens(token);
  Router(record.router)->Submit(std::move(submit));
  return id;
}

void SimCluster::Withdraw(ClientId id, bool satisfied) {
  ClientRecord& record = *clients_[id];
  if (record.over()) return;
  record.withdrawn = true;
  RouterNode* router = Router(record.router);
  if (router != nullptr) router->Withdraw(record.request, satisfied);
}

bool SimCluster::AllOver() const {
  return std::all_of(clients_.begin(), clients_.end(), [](const auto& c) { return c->over(); });
}

std::vector<InstanceId> SimCluster::Alive(Role role) const {
  std::vector<InstanceId> out;
  for (const SeatState& seat : seats_) {
    if (seat.role == role && seat.instance.value != 0) out.push_back(seat.instance);
  }
  return out;
}

InstanceId SimCluster::Seat(Role role, uint32_t index) const {
  for (const SeatState& seat : seats_) {
    if (seat.role == role && seat.index == index) return seat.instance;
  }
  return {};
}

uint32_t SimCluster::Seats(Role role) const {
  return static_cast<uint32_t>(std::count_if(
      seats_.begin(), seats_.end(), [role](const SeatState& seat) { return seat.role == role; }));
}

SimCluster::SeatState* SimCluster::FindSeat(Role role, uint32_t index) {
  for (SeatState& seat : seats_) {
    if (seat.role == role && seat.index == index) return &seat;
  }
  return nullptr;
}

RouterNode* SimCluster::Router(InstanceId id) {
  const auto found = routers_.find(id);
  return found == routers_.end() ? nullptr : found->second.get();
}

EngineNode* SimCluster::Engine(InstanceId id) {
  const auto found = engines_.find(id);
  return found == engines_.end() ? nullptr : found->second.get();
}

namespace {

// Where the newest attempt of a request is, among what engines report of it.
struct Newest {
  uint32_t attempt = 0;
  InstanceId where;
  std::string phase;
};

// `infos_of` gives an engine's list, or nothing for an engine of the other role.
template <class Engines, class InfosOf>
Newest FindNewest(const Engines& engines, const RequestKey& key, const InfosOf& infos_of) {
  Newest newest;
  for (const auto& [instance, node] : engines) {
    for (const auto& info : infos_of(*node)) {
      if (info.key != key || info.attempt.value < newest.attempt) continue;
      newest = {info.attempt.value, instance, info.phase};
    }
  }
  return newest;
}

template <class Engines>
Newest NewestDecode(const Engines& engines, const RequestKey& key) {
  return FindNewest(engines, key, [](const auto& node) {
    return node.decode() == nullptr ? std::vector<engine::DecodeCore::SequenceInfo>()
                                    : node.decode()->Sequences();
  });
}

template <class Engines>
Newest NewestPrefill(const Engines& engines, const RequestKey& key) {
  return FindNewest(engines, key, [](const auto& node) {
    return node.prefill() == nullptr ? std::vector<engine::PrefillCore::RequestInfo>()
                                     : node.prefill()->Requests();
  });
}

}  // namespace

engine::SamplingParams SamplingOf(const RequestSpec& spec) {
  engine::SamplingParams sampling;
  sampling.temperature = spec.temperature;
  sampling.seed = spec.sampling_seed;
  sampling.stop_tokens = spec.stop_tokens;
  sampling.min_tokens = spec.min_tokens;
  sampling.logprobs = spec.top_logprobs > 0;
  sampling.top_logprobs = spec.top_logprobs;
  sampling.repetition_penalty = spec.repetition_penalty;
  sampling.frequency_penalty = spec.frequency_penalty;
  sampling.presence_penalty = spec.presence_penalty;
  sampling.min_p = spec.min_p;
  sampling.logit_bias = spec.logit_bias;
  return sampling;
}

RequestKey SimCluster::KeyOf(ClientId id) const {
  return {clients_[id]->router, clients_[id]->request};
}

InstanceId SimCluster::DecodeOf(ClientId id) const { return NewestDecode(engines_, KeyOf(id)).where; }

std::string SimCluster::DecodePhase(ClientId id) const {
  return NewestDecode(engines_, KeyOf(id)).phase;
}

InstanceId SimCluster::PrefillOf(ClientId id) const {
  return NewestPrefill(engines_, KeyOf(id)).where;
}

std::string SimCluster::PrefillPhase(ClientId id) const {
  return NewestPrefill(engines_, KeyOf(id)).phase;
}

uint64_t SimCluster::rows_computed() const {
  uint64_t rows = 0;
  for (const auto& [id, node] : engines_) {
    if (node->prefill() != nullptr) rows += node->State().rows_computed;
  }
  return rows;
}

pb::Hello SimCluster::EngineHello(InstanceId id, Role role, uint64_t arena) const {
  const engine::ModelInfo& info = loaded_->info();
  pb::Hello hello;
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  hello.set_instance(id.value);
  hello.set_role(static_cast<pb::RoleKind>(role));
  hello.set_listen_address(absl::StrCat("sim:", id.value));
  hello.set_arena(arena);
  pb::Geometry& geometry = *hello.mutable_geometry();
  geometry.set_model("hash");
  geometry.set_model_digest(info.digest);
  geometry.set_layout_digest(info.layout.Digest());
  geometry.set_block_tokens(info.layout.block_tokens());
  geometry.set_vocab(info.vocab);
  geometry.set_positions_max(info.positions_max);
  geometry.set_decoder_tail_rows(info.decoder_tail_rows);
  geometry.set_sequence_tokens_max(config_.blocks * info.layout.block_tokens());
  for (const TokenId token : info.stop_tokens) geometry.add_stop_tokens(token);
  return hello;
}

void SimCluster::StartRouter(uint32_t seat) {
  const InstanceId id(next_instance_++);
  router::RouterCore::Config config;
  config.self = id;
  config.seed = config_.seed * 1000 + id.value;
  config.requests_max = config_.requests_max;
  config.attempts_max = config_.attempts_max;
  config.deadline = config_.deadline;
  config.lease = config_.lease;
  pb::Hello hello;
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  hello.set_instance(id.value);
  hello.set_role(pb::ROLE_KIND_ROUTER);
  hellos_[id] = hello;
  routers_[id] = std::make_unique<RouterNode>(static_cast<World*>(this), id, config);
  FindSeat(Role::kRouter, seat)->instance = id;
  net_.Add(id, routers_[id].get());
  for (const auto& [engine, node] : engines_) net_.Connect(engine, id, /*kept=*/true);
}

void SimCluster::StartEngine(Role role, uint32_t seat) {
  const InstanceId id(next_instance_++);
  const uint64_t arena = config_.paired ? 5000 + seat : 0;
  const uint64_t memory_key = config_.paired ? arena : id.value;
  const uint32_t shares = config_.paired ? 2 : 1;
  auto& memory = memories_[memory_key];
  if (memory == nullptr) {
    const uint32_t states = config_.prefill_slots + config_.decode_slots + config_.retain_max;
    memory = std::make_unique<SimMemory>(loaded_->info().layout, config_.blocks * shares,
                                         states * shares, config_.seed + id.value);
  }
  const int share = config_.paired && role == Role::kDecode ? 1 : 0;
  const engine::KvShare kv =
      engine::ShareOf(memory->kv(), share, static_cast<int>(shares));
  EngineNode::Options options;
  options.hello = EngineHello(id, role, arena);
  options.memory = &memory->kv();
  options.model = loaded_->Instantiate(memory->kv());
  options.device = config_.device;
  options.seed = config_.seed * 77 + id.value;
  options.blocking = config_.blocking_steps;
  if (role == Role::kPrefill) {
    engine::PrefillCore::Config config;
    config.model = loaded_->info();
    config.kv = kv;
    config.arena = arena;
    config.slots = config_.prefill_slots;
    config.chunk_rows = config_.chunk_rows;
    config.queue_max = config_.queue_max;
    config.retain_max = config_.retain_max;
    config.hit_tokens_min = config_.hit_tokens_min;
    config.window_states = config_.window_states;
    config.lease = config_.lease;
    options.prefill = std::make_unique<engine::PrefillCore>(std::move(config));
  } else {
    engine::DecodeCore::Config config;
    config.model = loaded_->info();
    config.kv = kv;
    config.arena = arena;
    config.slots = config_.decode_slots;
    config.step_rows_max = config_.step_rows_max;
    config.queue_max = config_.queue_max;
    config.growth_blocks = config_.growth_blocks;
    config.lease = config_.lease;
    options.decode = std::make_unique<engine::DecodeCore>(std::move(config));
  }
  hellos_[id] = options.hello;
  engines_[id] = std::make_unique<EngineNode>(static_cast<World*>(this), std::move(options));
  FindSeat(role, seat)->instance = id;
  net_.Add(id, engines_[id].get(), arena);
  transfer_.Add(id, &memory->kv());
  for (const auto& [router, node] : routers_) net_.Connect(id, router, /*kept=*/true);
}

void SimCluster::Restart(Role role, uint32_t index) {
  SeatState* seat = FindSeat(role, index);
  if (seat == nullptr || seat->instance.value != 0) return;
  if (role == Role::kRouter) {
    StartRouter(index);
    return;
  }
  if (!config_.paired) {
    StartEngine(role, index);
    return;
  }
  // A process holds both.
  if (FindSeat(Role::kPrefill, index)->instance.value != 0 ||
      FindSeat(Role::kDecode, index)->instance.value != 0) {
    return;
  }
  StartEngine(Role::kPrefill, index);
  StartEngine(Role::kDecode, index);
}

void SimCluster::Heal() {
  for (size_t i = 0; i < seats_.size(); ++i) Restart(seats_[i].role, seats_[i].index);
}

void SimCluster::Kill(InstanceId id) {
  std::vector<InstanceId> dying;
  for (SeatState& seat : seats_) {
    if (seat.instance != id) continue;
    const uint32_t index = seat.index;
    const bool together = config_.paired && seat.role != Role::kRouter;
    for (SeatState& other : seats_) {
      const bool mate = together && other.index == index && other.role != Role::kRouter;
      if (other.instance.value == 0 || (other.instance != id && !mate)) continue;
      dying.push_back(other.instance);
      other.instance = {};
    }
    break;
  }
  for (const InstanceId instance : dying) {
    net_.Remove(instance);
    transfer_.Remove(instance);
    engines_.erase(instance);
    routers_.erase(instance);
    memories_.erase(hellos_[instance].arena() != 0 ? hellos_[instance].arena() : instance.value);
    for (const auto& client : clients_) {
      if (client->router == instance && !client->over()) client->router_lost = true;
    }
  }
}

void SimCluster::Freeze(InstanceId id, Duration duration) {
  for (const SeatState& seat : seats_) {
    if (seat.instance.value == 0) continue;
    const bool mate = config_.paired && id.value != 0 && seat.role != Role::kRouter &&
                      hellos_[seat.instance].arena() == hellos_[id].arena();
    if (seat.instance != id && !mate) continue;
    SimNode* node = Router(seat.instance);
    if (node == nullptr) node = Engine(seat.instance);
    node->Freeze(now() + duration);
    net_.HoldAll(seat.instance, duration);
  }
}

void SimCluster::Drain(InstanceId id, Duration grace) {
  for (const SeatState& seat : seats_) {
    if (seat.instance != id) continue;
    const Instant deadline = now() + grace;
    if (seat.role == Role::kRouter) {
      Router(id)->Drain(deadline);
    } else if (!config_.paired) {
      Engine(id)->Drain(deadline);
    } else {
      Engine(Seat(Role::kPrefill, seat.index))->Drain(deadline);
      Engine(Seat(Role::kDecode, seat.index))->Drain(deadline);
    }
    return;
  }
}

void SimCluster::OnExit(InstanceId id, bool poisoned) {
  if (config_.paired && !poisoned) {
    // The process leaves when both of its engines have nothing left.
    drained_.insert(id);
    const auto seat = std::find_if(seats_.begin(), seats_.end(),
                                   [id](const SeatState& s) { return s.instance == id; });
    if (seat == seats_.end()) return;
    const bool prefill = seat->role == Role::kPrefill;
    if (!drained_.contains(Seat(prefill ? Role::kDecode : Role::kPrefill, seat->index))) return;
  }
  Kill(id);
}

}  // namespace weir::sim
