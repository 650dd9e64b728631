// SPDX-License-Identifier: Apache-2.0
//
// SimNode: one simulated process: a production core and what its shell would do. EngineNode and
// RouterNode obey their core's actions as engine_io.h and router_io.h say and decide nothing. One
// thread. A frozen node keeps what arrives until it thaws; an engine whose steps block does the same
// until its step is done. The node calls back into its World, which outlives it.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/cache/kv_pool.h"
#include "engine/decode/decode_core.h"
#include "engine/prefill/prefill_core.h"
#include "replay/sim/sim_clock.h"
#include "replay/sim/sim_device.h"
#include "replay/sim/sim_net.h"
#include "replay/sim/sim_transfer.h"
#include "router/session/router_core.h"

namespace weir::sim {

class SimNode;

// What a node sees of the cluster.
class World {
 public:
  virtual ~World() = default;
  virtual SimClock& clock() = 0;
  virtual SimNet& net() = 0;
  virtual SimTransfer& transfer() = 0;
  // Of any process that ever lived.
  virtual const pb::Hello& HelloOf(InstanceId id) = 0;
  virtual void OnDelivery(InstanceId router, const router::RouterActions::Deliver& delivery) = 0;
  virtual void OnClose(InstanceId router, const router::RouterActions::Close& close) = 0;
  // The process ends by itself: drained, or its device is lost.
  virtual void OnExit(InstanceId id, bool poisoned) = 0;
  // After every event of a core.
  virtual void Inspect(SimNode& node) = 0;
  virtual void Violate(std::string sentence) = 0;
};

class SimNode : public SimNet::Endpoint {
 public:
  SimNode(World* world, InstanceId id, Role role)
      : world_(*world), id_(id), role_(role), alive_(std::make_shared<bool>(true)) {}
  ~SimNode() override { *alive_ = false; }
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  InstanceId id() const { return id_; }
  Role role() const { return role_; }
  void Freeze(Instant until);
  bool frozen() const { return world_.clock().now() < frozen_until_; }
  virtual void Drain(Instant deadline) = 0;
  // Empty, or what is wrong; `deep` looks at every page.
  virtual std::string Check(bool deep) const { return {}; }
  // Empty, or what is still held although nothing should be.
  virtual std::string Leftover() const = 0;
  uint64_t events() const { return events_; }

 protected:
  // Runs now, or in order once the node may look at its inbox.
  void Handle(Task task);
  virtual bool MayHandle() const { return !frozen(); }
  void Pump();
  // After every event: books the core's deadline and has the cluster look.
  void Settle(Instant deadline);
  virtual void Tick() = 0;
  std::shared_ptr<bool> alive() const { return alive_; }

  World& world_;

 private:
  const InstanceId id_;
  const Role role_;
  const std::shared_ptr<bool> alive_;
  Instant frozen_until_{};
  std::deque<Task> inbox_;
  bool pumping_ = false;
  uint64_t events_ = 0;
  uint64_t tick_turn_ = 0;
  Instant tick_at_ = kNever;
  Instant spun_at_{};
  uint32_t spins_ = 0;
};

class EngineNode final : public SimNode {
 public:
  struct Options {
    pb::Hello hello;
    const engine::KvMemory* memory = nullptr;
    std::unique_ptr<engine::Model> model;
    DeviceTimes device;
    uint64_t seed = 1;
    bool blocking = false;  // the inbox waits while a step runs, as in a real step thread
    std::unique_ptr<engine::PrefillCore> prefill;  // one of the two
    std::unique_ptr<engine::DecodeCore> decode;
  };

  EngineNode(World* world, Options options);

  const engine::PrefillCore* prefill() const { return options_.prefill.get(); }
  const engine::DecodeCore* decode() const { return options_.decode.get(); }
  engine::EngineState State() const;
  SimDevice& device() { return *device_; }
  const pb::Hello& hello() const { return options_.hello; }

  void Drain(Instant deadline) override;
  std::string Check(bool deep) const override;
  std::string Leftover() const override;
  void OnLinkUp(InstanceId peer) override;
  void OnLinkDown(InstanceId peer) override;
  void OnMessage(InstanceId from, const pb::Envelope& message) override;

 private:
  bool MayHandle() const override;
  void Tick() override;
  void Deliver(const engine::EngineEvent& event);
  void Perform();
  void PerformTokens();

  Options options_;
  std::unique_ptr<SimDevice> device_;
  engine::EngineActions actions_;
  bool exit_told_ = false;
};

class RouterNode final : public SimNode {
 public:
  RouterNode(World* world, InstanceId id, const router::RouterCore::Config& config);

  const router::RouterCore& core() const { return core_; }
  void Submit(router::Submit submit);
  void Withdraw(RequestId request, bool satisfied);

  void Drain(Instant deadline) override;
  std::string Leftover() const override;
  void OnLinkUp(InstanceId peer) override;
  void OnLinkDown(InstanceId peer) override;
  void OnMessage(InstanceId from, const pb::Envelope& message) override;

 private:
  void Tick() override;
  void Deliver(const router::RouterEvent& event);

  router::RouterCore core_;
  router::RouterActions actions_;
};

}  // namespace weir::sim
