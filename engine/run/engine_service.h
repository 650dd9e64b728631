// SPDX-License-Identifier: Apache-2.0
//
// EngineService: the shell around an engine core. It owns the step thread, on which the core, the
// model and the transfer live, and the channel to routers and other engines; it translates events
// and obeys actions, and decides nothing. Start, Drain, Stop and state() are for any thread; the
// only waits of the step thread are for a step's result and, when idle, for its inbox.
// What goes wrong: a peer that says Hello of another model or protocol is refused with the reason;
// one that says no Hello in time, talks nonsense or does not take its messages is dropped like a
// lost one, and a router is then dialled anew; a poisoned device calls `on_poisoned` once.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/net/channel.h"
#include "base/obs/span.h"
#include "base/obs/trace_point.h"
#include "base/runtime/task.h"
#include "base/stdx/bounded_queue.h"
#include "engine/model/model.h"
#include "engine/run/engine_io.h"
#include "kvstore/transfer/transfer.h"

namespace weir::engine {

// Regions of a process's KV memory in Hello and in transfers.
inline constexpr uint32_t kEncoderRegion = 0;
inline constexpr uint32_t kDecoderRegion = 1;
inline constexpr uint32_t kStateRegion = 2;

// What EngineService needs of a core; EngineCoreOf adapts any class of that shape.
class EngineCore {
 public:
  virtual ~EngineCore() = default;
  virtual void On(Instant now, const EngineEvent& event, EngineActions* out) = 0;
  virtual Instant NextDeadline() const = 0;
  virtual EngineState State() const = 0;
};

template <class C>
class EngineCoreOf final : public EngineCore {
 public:
  explicit EngineCoreOf(std::unique_ptr<C> core) : core_(std::move(core)) {}
  void On(Instant now, const EngineEvent& event, EngineActions* out) override {
    core_->On(now, event, out);
  }
  Instant NextDeadline() const override { return core_->NextDeadline(); }
  EngineState State() const override { return core_->state(); }

 private:
  std::unique_ptr<C> core_;
};

struct EngineServiceOptions {
  Role role = Role::kUnspecified;
  std::string name;             // for people and logs
  InstanceId instance;          // drawn at start
  uint64_t arena = 0;           // equal in engines that share `memory`; 0 = private
  std::string listen_address;   // for peers; empty: none
  std::string advertised_address;  // what peers are told; empty: 127.0.0.1 and the bound port
  std::vector<std::string> routers;
  pb::Geometry geometry;
  KvMemory memory;
  std::unique_ptr<EngineCore> core;
  std::unique_ptr<Model> model;
  // Made with the wake-up of the step thread; null when every peer shares the arena.
  std::function<absl::StatusOr<std::unique_ptr<kv::Transfer>>(std::function<void()> wake)>
      make_transfer;
  ChannelFactory make_channel;
  Duration transfer_delay{0};   // for tests: each read starts this much later
  // From a dial, or a link, to a good Hello. The peer says it between steps, which may be long.
  Duration dial_timeout = std::chrono::seconds(20);
  Duration redial_after = std::chrono::seconds(1);  // pause before a dropped router is dialled anew
  Duration redial_max = std::chrono::seconds(30);   // of one that refuses; the pause doubles up to it
  size_t inbox_capacity = 16384;
  std::function<void()> on_poisoned;
  TracePointSink* trace = nullptr;  // borrowed; null: nothing is recorded
  SpanSink* spans = nullptr;        // borrowed; null: spans are thrown away
  std::string build;
};

class EngineService final : private Channel::Handler {
 public:
  static absl::StatusOr<std::unique_ptr<EngineService>> Create(EngineServiceOptions options);
  ~EngineService() override;  // Stop

  void Start();
  // Asks the core to finish what runs; `drained` runs once on the step thread when nothing is left.
  void Drain(Instant deadline, Task drained);
  // Leaves at once: joins the step thread and closes every link.
  void Stop();

  // At most 50 ms old.
  EngineState state() const;
  std::string address() const { return options_.advertised_address; }
  InstanceId instance() const { return options_.instance; }
  Role role() const { return options_.role; }
  const std::string& name() const { return options_.name; }
  // Advances with every turn of the step thread while there is work.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // True while a step runs or requests are held.
  bool busy() const { return busy_.load(std::memory_order_relaxed); }
  uint32_t routers_up() const { return routers_up_.load(std::memory_order_relaxed); }
  kv::TransferStats transfer_stats() const;

 private:
  struct Item {
    enum class Kind : uint8_t { kUp, kDown, kMessage, kNonsense, kDrain, kWake };
    Kind kind = Kind::kWake;
    PeerId peer;
    std::string address;  // kUp of a dialled peer
    std::unique_ptr<pb::Envelope> message;
    size_t bytes = 0;  // of the message as it came
    Instant deadline = kNever;
  };
  struct Peer {
    PeerId id;
    InstanceId instance;       // 0 until its Hello was accepted
    Role role = Role::kUnspecified;
    InstanceId dialled_for;    // we dialled this instance, not a router
    std::string router;        // we dialled this router's address
    bool up = false;
    Instant hello_deadline = kNever;
  };
  struct Redial {
    Instant due;
    std::string router;
  };
  // Who ended a link: the channel dials a router that it lost again by itself.
  enum class LinkEnd : uint8_t { kByChannel, kByUs };
  struct DelayedFetch {
    Instant due;
    Fetch fetch;
  };
  // What a trace row needs of a read under way.
  struct FetchTrace {
    FetchId fetch;
    InstanceId from;
    Instant begun;
    int64_t bytes = 0;
  };

  explicit EngineService(EngineServiceOptions options);

  // Channel::Handler, on the channel's thread.
  void OnUp(PeerId peer, std::string_view address) override;
  void OnDown(PeerId peer, const absl::Status& why) override;
  bool OnMessage(PeerId peer, std::string&& bytes) override;

  // Waits for room; for what must not be lost. Not on the step thread.
  void PushSurely(Item item);

  // All below on the step thread.
  void Run();
  void DialRouter(std::string address);
  void Handle(Instant now, Item& item);
  void HandleMessage(Instant now, PeerId from, const pb::Envelope& message);
  void HandleHello(Instant now, Peer& peer, const pb::Hello& hello);
  void LosePeer(Instant now, PeerId id, LinkEnd end = LinkEnd::kByUs);
  void Deliver(Instant now, const EngineEvent& event);
  void Perform(Instant now);
  void PerformDial(Instant now, const EngineActions::Dial& dial);
  void PerformSend(EngineActions::Send& send);
  void PerformFetch(Instant now, Fetch fetch);
  void PostFetch(const Fetch& fetch);
  void PerformTokens();
  void AddChecksums(InstanceId to, pb::Envelope* message) const;
  void SendTo(InstanceId to, const pb::Envelope& message);
  void PollTransfer(Instant now);
  void TraceStepDone(const StepPlan& plan, Instant begun, Instant done) const;
  void TraceFetchDone(const FetchTrace& fetch, Instant now) const;
  Duration RedialPause(const std::string& router) const;
  void LogRouter(const char* what, const Peer& router) const;
  void RunStep(Instant now);
  void CheckDials(Instant now);
  void Publish(Instant now);
  Duration IdleWait(Instant now) const;
  pb::Hello MakeHello() const;

  EngineServiceOptions options_;  // constant after Create, but for the owned parts
  std::unique_ptr<Channel> channel_;
  std::thread thread_;
  BoundedQueue<Item> inbox_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> wake_queued_{false};
  std::atomic<size_t> inbox_bytes_{0};
  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> busy_{false};
  std::atomic<uint32_t> routers_up_{0};
  bool started_ = false;  // owner's thread

  mutable absl::Mutex mu_;
  EngineState published_ ABSL_GUARDED_BY(mu_);
  kv::TransferStats published_transfer_ ABSL_GUARDED_BY(mu_);
  Task drained_ ABSL_GUARDED_BY(mu_);

  // Owned by the step thread.
  std::unique_ptr<kv::Transfer> transfer_;
  EngineActions actions_;
  StepResult result_;
  const StepPlan* launched_ = nullptr;
  absl::flat_hash_map<uint64_t, Peer> peers_;               // by PeerId
  absl::flat_hash_map<InstanceId, PeerId> peer_of_;          // accepted, up
  absl::flat_hash_map<InstanceId, uint64_t> arena_of_;
  absl::flat_hash_map<uint64_t, FetchTrace> fetch_of_;       // by TransferId
  absl::flat_hash_map<FetchId, uint64_t> transfer_of_;
  std::vector<DelayedFetch> delayed_;
  std::vector<FetchDone> answered_;  // fetches that are over without a transfer
  std::vector<PeerId> refused_peers_;
  std::vector<InstanceId> refused_dials_;
  std::vector<Redial> redials_;
  absl::flat_hash_map<std::string, uint32_t> refusals_;  // in a row, by address of the router
  Instant published_at_{};
};

}  // namespace weir::engine
