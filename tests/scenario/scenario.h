// SPDX-License-Identifier: Apache-2.0
//
// Scenario: the words in which cluster stories are told. A thin layer over SimCluster for tests; one
// thread, simulated time. Every helper fails the test when an invariant breaks, so a story states
// only what is special about it. `Ends` closes a story: all requests end, silence leaves nothing,
// and the canary sings.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "gtest/gtest.h"
#include "replay/sim/sim_cluster.h"

namespace weir::sim {

// WEIR_PLANTED=N arms a planted bug in a test program too, so that the acceptance scripts can prove
// that they would notice it.
inline const bool kPlantedFromEnvironment = [] {
  const char* value = std::getenv("WEIR_PLANTED");
  if (value != nullptr) g_planted = std::atoi(value);
  return g_planted != 0;
}();

// Counts how often a rare branch was taken since the test began.
class Reached {
 public:
  explicit Reached(std::string label) : label_(std::move(label)), before_(ReachedCount(label_)) {}
  uint64_t count() const { return ReachedCount(label_) - before_; }

 private:
  const std::string label_;
  const uint64_t before_;
};

class Scenario {
 public:
  explicit Scenario(const ClusterConfig& config = Small()) : cluster_(config) {
    EXPECT_TRUE(cluster_.RunFor(Millis(20)));  // everybody knows everybody
  }

  // Two of each, blocks of 16 tokens, no surprises.
  static ClusterConfig Small() {
    ClusterConfig config;
    config.seed = 7;
    config.model.block_tokens = 16;
    config.model.window = 8;
    config.model.decoder_tail_rows = 8;
    config.net.dead_after = Millis(1000);
    return config;
  }

  ClientId Ask(RequestSpec spec) { return cluster_.Submit(std::move(spec)); }
  ClientId Ask(uint32_t prompt_tokens, uint32_t new_tokens_max) {
    RequestSpec spec;
    spec.prompt_tokens = prompt_tokens;
    spec.new_tokens_max = new_tokens_max;
    return Ask(spec);
  }
  std::vector<ClientId> AskMany(uint32_t count, const RequestSpec& spec) {
    std::vector<ClientId> out;
    for (uint32_t i = 0; i < count; ++i) out.push_back(Ask(spec));
    return out;
  }

  void RunUntil(const std::function<bool()>& done, Duration limit = std::chrono::seconds(60)) {
    EXPECT_TRUE(cluster_.RunUntil(done, limit)) << Why();
  }
  void RunUntilReceived(ClientId id, uint32_t tokens) {
    RunUntil([this, id, tokens] { return At(id).received.size() >= tokens || At(id).over(); });
  }
  void RunUntilOver(ClientId id) {
    RunUntil([this, id] { return At(id).over(); });
  }
  void RunFor(Duration duration) { EXPECT_TRUE(cluster_.RunFor(duration)) << Why(); }

  ClientRecord& At(ClientId id) { return cluster_.client(id); }
  const std::vector<TokenId>& Text(ClientId id) { return At(id).received; }
  uint32_t Attempts(ClientId id) { return At(id).close ? At(id).close->attempts : 0; }
  Reason ReasonFor(ClientId id) {
    return At(id).close ? ReasonOf(At(id).close->status) : Reason::kOk;
  }

  // The whole text, whatever happened meanwhile.
  void ExpectWhole(ClientId id) {
    RunUntilOver(id);
    EXPECT_TRUE(At(id).succeeded()) << Why();
    EXPECT_EQ(Text(id), cluster_.Oracle(id)) << Why();
  }

  void Ends() { EXPECT_TRUE(cluster_.Finish()) << Why(); }
  std::string Why() const {
    return cluster_.violation().empty() ? "time ran out" : cluster_.violation();
  }

  // Engines in use, summed over all of a role.
  uint32_t PagesUsed(Role role) {
    uint32_t pages = 0;
    for (const InstanceId id : cluster_.Alive(role)) {
      pages += cluster_.Engine(id)->State().pages_used[1];
    }
    return pages;
  }
  uint32_t SlotsUsed(Role role) {
    uint32_t slots = 0;
    for (const InstanceId id : cluster_.Alive(role)) {
      slots += cluster_.Engine(id)->State().slots_used;
    }
    return slots;
  }
  uint64_t Sum(Role role, uint64_t engine::EngineState::* figure) {
    uint64_t sum = 0;
    for (const InstanceId id : cluster_.Alive(role)) {
      sum += cluster_.Engine(id)->State().*figure;
    }
    return sum;
  }

  SimCluster& cluster() { return cluster_; }
  SimCluster* operator->() { return &cluster_; }

 private:
  SimCluster cluster_;
};

}  // namespace weir::sim
