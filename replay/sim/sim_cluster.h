// SPDX-License-Identifier: Apache-2.0
//
// SimCluster: routers, prefill and decode engines of one seed and one configuration on a simulated
// clock and network, with clients in front and faults from outside. The cores are the production
// ones. One thread; two clusters of one configuration do exactly the same. After every event the
// invariants are checked (invariants.h); the first that breaks is kept in `violation()` and time
// stands still from then on.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/model/hash_model.h"
#include "engine/model/hash_oracle.h"
#include "replay/sim/sim_memory.h"
#include "replay/sim/sim_node.h"

namespace weir::sim {

struct ClusterConfig {
  uint64_t seed = 1;
  uint32_t routers = 1;
  uint32_t prefill = 2;
  uint32_t decode = 2;
  // Prefill i and decode i live in one process and share one arena; they die together.
  bool paired = false;
  engine::HashConfig model;
  uint32_t blocks = 64;  // per engine
  uint32_t prefill_slots = 8;
  uint32_t decode_slots = 16;
  uint32_t chunk_rows = 64;
  uint32_t queue_max = 64;
  Position hit_tokens_min = 256;
  uint32_t window_states = 4;
  uint32_t retain_max = 8;
  uint32_t growth_blocks = 2;
  uint32_t step_rows_max = 0;
  uint32_t requests_max = 256;
  uint32_t attempts_max = 6;
  Duration deadline = std::chrono::seconds(120);
  Duration lease = std::chrono::seconds(3);
  NetOptions net;
  TransferTimes transfer;
  DeviceTimes device;
  bool blocking_steps = false;
  bool failures_allowed = false;  // a request may end with an error that a client may retry
};

using ClientId = uint32_t;

struct RequestSpec {
  uint32_t prompt_tokens = 32;
  uint32_t common_tokens = 0;   // of a drawn prompt: its beginning, which others have too
  std::vector<TokenId> prompt;  // drawn from the seed when empty
  uint32_t new_tokens_max = 32;
  float temperature = 0;
  uint64_t sampling_seed = 1;
  std::vector<TokenId> stop_tokens = {1};
  uint32_t min_tokens = 0;
  uint32_t top_logprobs = 0;  // > 0 also asks for logprobs
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  float min_p = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::string tenant;  // who shares prefixes with it
  Duration deadline{0};
  uint32_t router = 0;  // index among the live ones
  // The client leaves after so many tokens.
  std::optional<uint32_t> leave_after;
  bool satisfied = false;  // ... because a stop string ended it
};

// As the engine understands it.
engine::SamplingParams SamplingOf(const RequestSpec& spec);

struct ClientRecord {
  RequestSpec spec;
  InstanceId router;
  RequestId request;
  Position tail_start = 0;
  Instant submitted{};
  Instant first_token{};
  Instant last_token{};
  Duration longest_gap{0};
  std::vector<TokenId> received;
  uint32_t scores = 0;
  std::optional<router::RouterActions::Close> close;
  bool withdrawn = false;
  bool router_lost = false;
  std::unique_ptr<engine::HashOracle> oracle;

  bool over() const { return close.has_value() || withdrawn || router_lost; }
  bool succeeded() const { return close.has_value() && close->status.ok(); }
};

class SimCluster final : private World {
 public:
  explicit SimCluster(const ClusterConfig& config);
  ~SimCluster() override;

  // Time. All return false when an invariant broke, and RunUntil also when time ran out.
  bool Step();
  bool RunFor(Duration duration);
  bool RunUntil(const std::function<bool()>& done, Duration limit = std::chrono::seconds(300));
  Instant now() const { return clock_.now(); }
  uint64_t events() const { return clock_.events(); }
  void At(Instant when, Task task) { clock_.At(when, std::move(task)); }

  // Clients.
  ClientId Submit(RequestSpec spec);
  void Withdraw(ClientId id, bool satisfied = false);
  ClientRecord& client(ClientId id) { return *clients_[id]; }
  uint32_t clients() const { return static_cast<uint32_t>(clients_.size()); }
  // The whole undisturbed answer.
  std::vector<TokenId> Oracle(ClientId id);
  bool AllOver() const;

  // Processes. Instances change with every restart; seats do not.
  std::vector<InstanceId> Alive(Role role) const;
  InstanceId Seat(Role role, uint32_t seat) const;  // 0 while nobody sits there
  uint32_t Seats(Role role) const;
  RouterNode* Router(InstanceId id);
  EngineNode* Engine(InstanceId id);
  // Where an attempt of the request is now; 0 if nowhere.
  InstanceId DecodeOf(ClientId id) const;
  InstanceId PrefillOf(ClientId id) const;
  // The phase there, "" if nowhere.
  std::string DecodePhase(ClientId id) const;
  std::string PrefillPhase(ClientId id) const;

  // Faults.
  void Kill(InstanceId id);
  void Restart(Role role, uint32_t seat);  // nothing while somebody sits there
  void Heal();                             // restarts everything that is missing
  void Freeze(InstanceId id, Duration duration);
  void Drain(InstanceId id, Duration grace);
  SimNet& net() override { return net_; }
  SimTransfer& transfer() override { return transfer_; }
  void AllowFailures() { config_.failures_allowed = true; }

  // Runs until every request ended, then in silence, and checks that nothing is left anywhere;
  // then asks the canary. False on a violation.
  bool Finish();

  const std::string& violation() const { return violation_; }
  const ClusterConfig& config() const { return config_; }
  uint64_t rows_computed() const;  // of live prefill engines

 private:
  RequestKey KeyOf(ClientId id) const;
  struct SeatState {
    Role role;
    uint32_t index;
    InstanceId instance;  // 0: empty
  };

  SimClock& clock() override { return clock_; }
  const pb::Hello& HelloOf(InstanceId id) override { return hellos_.at(id); }
  void OnDelivery(InstanceId router, const router::RouterActions::Deliver& delivery) override;
  void OnClose(InstanceId router, const router::RouterActions::Close& close) override;
  void OnExit(InstanceId id, bool poisoned) override;
  void Inspect(SimNode& node) override;
  void Violate(std::string sentence) override;

  void StartRouter(uint32_t seat);
  void StartEngine(Role role, uint32_t seat);
  pb::Hello EngineHello(InstanceId id, Role role, uint64_t arena) const;
  ClientRecord* FindClient(InstanceId router, RequestId request);
  void CheckClose(const ClientRecord& record);
  bool Silence();
  bool CheckBase();
  bool CheckCounters();
  bool AskCanary();
  SeatState* FindSeat(Role role, uint32_t index);

  ClusterConfig config_;
  SimClock clock_;
  Random random_;
  SimNet net_;
  SimTransfer transfer_;
  const std::shared_ptr<const engine::LoadedModel> loaded_;
  std::map<InstanceId, pb::Hello> hellos_;
  std::vector<SeatState> seats_;
  std::map<uint64_t, std::unique_ptr<SimMemory>> memories_;  // by arena or instance
  std::map<InstanceId, std::unique_ptr<RouterNode>> routers_;
  std::map<InstanceId, std::unique_ptr<EngineNode>> engines_;
  std::vector<std::unique_ptr<ClientRecord>> clients_;
  std::map<std::pair<InstanceId, RequestId>, ClientId> client_of_;
  std::set<InstanceId> drained_;  // paired engines with nothing left
  std::string violation_;
  uint64_t next_instance_ = 100;
  uint64_t next_request_ = 1;
};

}  // namespace weir::sim
