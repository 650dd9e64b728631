// SPDX-License-Identifier: Apache-2.0
//
// SimNet: links between simulated processes, as base/net/channel makes them: messages in order and
// at most once per life of a link, both sides told when it ends. One thread. It draws latencies from
// its own random stream. Faults lose links or hold them up, never reorder or repeat messages, since
// the real channel does not either.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/stdx/ids.h"
#include "base/stdx/random.h"
#include "proto/peer.pb.h"
#include "replay/sim/sim_clock.h"

namespace weir::sim {

namespace pb = ::weir::v1;

struct NetOptions {
  Duration latency_min = std::chrono::microseconds(50);
  Duration latency_max = std::chrono::microseconds(800);
  Duration notice = Millis(3);         // from the end of a process to its peers' knowing
  Duration dead_after = Millis(5000);  // silence that ends a link
  Duration redial = Millis(60);
  bool serialise = true;  // messages cross as bytes, as between hosts
};

class SimNet {
 public:
  class Endpoint {
   public:
    virtual ~Endpoint() = default;
    virtual void OnLinkUp(InstanceId peer) = 0;
    virtual void OnLinkDown(InstanceId peer) = 0;
    virtual void OnMessage(InstanceId from, const pb::Envelope& message) = 0;
  };

  SimNet(SimClock* clock, uint64_t seed, const NetOptions& options)
      : clock_(*clock), random_(seed, 11), options_(options) {}

  // Links between endpoints of one host other than 0 are inside a process: no fault reaches them.
  void Add(InstanceId id, Endpoint* endpoint, uint64_t host = 0);
  // The process is gone: what it had sent may still arrive, then its peers learn of it.
  void Remove(InstanceId id);

  // Dials unless a link is there. `kept`: dialled again after every loss while both live. A dial
  // that fails for good tells the dialler OnLinkDown.
  void Connect(InstanceId from, InstanceId to, bool kept);
  // Dropped when the link is down.
  void Send(InstanceId from, InstanceId to, const pb::Envelope& message);
  bool IsUp(InstanceId a, InstanceId b) const;

  // Faults. A link that is held up longer than dead_after is lost, and made anew afterwards.
  void DropLink(InstanceId a, InstanceId b);
  void HoldLink(InstanceId a, InstanceId b, Duration duration);
  // All links of a process that does not answer for so long.
  void HoldAll(InstanceId id, Duration duration);

  uint64_t messages() const { return messages_; }
  // Told of every message that is sent, for people who look into a seed.
  void Watch(std::function<void(InstanceId from, InstanceId to, const pb::Envelope&)> watch) {
    watch_ = std::move(watch);
  }

 private:
  struct Link {
    bool up = false;
    bool kept = false;
    uint32_t life = 0;       // counts up when the link ends
    Instant held_until{};
    Instant last[2] = {};    // latest arrival, towards first and second
    Instant cut[2] = {};     // of the life before: later arrivals are lost
    bool told[2] = {false, false};     // that side saw OnLinkUp in this life
    bool dialled[2] = {false, false};  // that side waits for its dial
    InstanceId dialler;
  };
  using Pair = std::pair<InstanceId, InstanceId>;

  static Pair PairOf(InstanceId a, InstanceId b) { return a < b ? Pair(a, b) : Pair(b, a); }
  static int Side(const Pair& pair, InstanceId id) { return id == pair.first ? 0 : 1; }
  InstanceId At(const Pair& pair, int side) const { return side == 0 ? pair.first : pair.second; }
  Duration Latency();
  // Schedules an arrival at `side` behind all earlier ones.
  Instant Arrive(Link* link, int side, Duration extra);
  void Establish(const Pair& pair, uint32_t life);
  void End(const Pair& pair, Duration notice, bool lossy);
  void Redial(const Pair& pair);
  Endpoint* Find(InstanceId id) const;
  bool Inside(const Pair& pair) const;

  SimClock& clock_;
  Random random_;
  const NetOptions options_;
  std::map<InstanceId, Endpoint*> endpoints_;
  std::map<InstanceId, uint64_t> hosts_;
  std::map<Pair, Link> links_;
  uint64_t messages_ = 0;
  std::function<void(InstanceId, InstanceId, const pb::Envelope&)> watch_;
};

}  // namespace weir::sim
