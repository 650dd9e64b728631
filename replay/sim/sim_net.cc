// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/sim_net.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/stdx/check.h"

namespace weir::sim {

void SimNet::Add(InstanceId id, Endpoint* endpoint, uint64_t host) {
  endpoints_[id] = endpoint;
  hosts_[id] = host;
}

bool SimNet::Inside(const Pair& pair) const {
  const auto first = hosts_.find(pair.first);
  const auto second = hosts_.find(pair.second);
  return first != hosts_.end() && second != hosts_.end() && first->second != 0 &&
         first->second == second->second;
}

void SimNet::Remove(InstanceId id) {
  endpoints_.erase(id);
  for (auto& [pair, link] : links_) {
    if (pair.first != id && pair.second != id) continue;
    link.kept = false;
    End(pair, options_.notice, /*lossy=*/false);
  }
}

SimNet::Endpoint* SimNet::Find(InstanceId id) const {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : found->second;
}

Duration SimNet::Latency() {
  return Duration(random_.Between(options_.latency_min.count(), options_.latency_max.count()));
}

Instant SimNet::Arrive(Link* link, int side, Duration extra) {
  const Instant from = std::max(clock_.now(), link->held_until);
  link->last[side] = std::max(link->last[side], from + Latency() + extra);
  return link->last[side];
}

void SimNet::Connect(InstanceId from, InstanceId to, bool kept) {
  const Pair pair = PairOf(from, to);
  Link& link = links_[pair];
  link.kept = link.kept || kept;
  const int side = Side(pair, from);
  if (link.up || link.dialled[0] || link.dialled[1]) {
    link.dialled[side] = true;
    return;
  }
  link.dialled[side] = true;
  const Instant when = std::max({clock_.now(), link.held_until, link.last[0], link.last[1]});
  clock_.At(when + Latency(), [this, pair, life = link.life] { Establish(pair, life); });
}

// Each side hears of the other when the other's Hello arrives.
void SimNet::Establish(const Pair& pair, uint32_t life) {
  Link& link = links_[pair];
  if (link.life != life || link.up) return;
  if (Find(pair.first) == nullptr || Find(pair.second) == nullptr) {
    End(pair, Millis(1), /*lossy=*/false);
    return;
  }
  link.up = true;
  for (int side = 0; side < 2; ++side) {
    clock_.At(Arrive(&link, side, Duration::zero()), [this, pair, life, side] {
      Link& now = links_[pair];
      if (now.life != life) return;
      Endpoint* endpoint = Find(At(pair, side));
      if (endpoint == nullptr) return;
      now.told[side] = true;
      now.dialled[side] = false;
      endpoint->OnLinkUp(At(pair, 1 - side));
    });
  }
}

void SimNet::End(const Pair& pair, Duration notice, bool lossy) {
  Link& link = links_[pair];
  const bool alive = link.up || link.dialled[0] || link.dialled[1];
  if (!alive) return;
  const bool kept = link.kept;
  Instant over = clock_.now();
  for (int side = 0; side < 2; ++side) {
    const Instant last = std::max(link.last[side], clock_.now());
    link.cut[side] = last;
    if (lossy) {
      const auto span = static_cast<uint64_t>((last - clock_.now()).count());
      link.cut[side] = clock_.now() + Duration(static_cast<int64_t>(random_.Below(span + 1)));
    }
    if (link.told[side] || link.dialled[side]) {
      link.last[side] = last + notice;
      clock_.At(link.last[side], [this, pair, side] {
        Endpoint* endpoint = Find(At(pair, side));
        if (endpoint != nullptr) endpoint->OnLinkDown(At(pair, 1 - side));
      });
    }
    over = std::max(over, link.last[side]);
    link.told[side] = link.dialled[side] = false;
  }
  link.up = false;
  ++link.life;
  if (kept) {
    const Instant again = std::max(over, link.held_until) + options_.redial;
    clock_.At(again, [this, pair] { Redial(pair); });
  }
}

void SimNet::Redial(const Pair& pair) {
  const Link& link = links_[pair];
  if (link.up || !link.kept || link.dialled[0] || link.dialled[1]) return;
  if (Find(pair.first) == nullptr || Find(pair.second) == nullptr) return;
  Connect(pair.first, pair.second, true);
}

bool SimNet::IsUp(InstanceId a, InstanceId b) const {
  const auto found = links_.find(PairOf(a, b));
  return found != links_.end() && found->second.up;
}

void SimNet::Send(InstanceId from, InstanceId to, const pb::Envelope& message) {
  const Pair pair = PairOf(from, to);
  const auto found = links_.find(pair);
  if (found == links_.end()) return;
  Link& link = found->second;
  // A side sends once it was told of the link, as the real one does after the other's Hello.
  if (!link.up || !link.told[Side(pair, from)]) return;
  ++messages_;
  if (watch_) watch_(from, to, message);
  auto copy = std::make_shared<pb::Envelope>();
  if (options_.serialise) {
    WEIR_CHECK(copy->ParseFromString(message.SerializeAsString()));
  } else {
    *copy = message;
  }
  const int side = Side(pair, to);
  const Instant when = Arrive(&link, side, Duration::zero());
  clock_.At(when, [this, pair, side, from, when, life = link.life, copy] {
    const Link& now = links_[pair];
    const bool late = now.life == life + 1 && when <= now.cut[side];
    if (now.life != life && !late) return;
    Endpoint* endpoint = Find(At(pair, side));
    if (endpoint != nullptr) endpoint->OnMessage(from, *copy);
  });
}

void SimNet::DropLink(InstanceId a, InstanceId b) {
  const Pair pair = PairOf(a, b);
  if (links_.contains(pair) && !Inside(pair)) End(pair, Millis(1), /*lossy=*/true);
}

void SimNet::HoldLink(InstanceId a, InstanceId b, Duration duration) {
  const Pair pair = PairOf(a, b);
  if (!links_.contains(pair) || Inside(pair)) return;
  Link& link = links_[pair];
  link.held_until = std::max(link.held_until, clock_.now() + duration);
  if (duration < options_.dead_after) return;
  clock_.After(options_.dead_after, [this, pair, life = link.life] {
    Link& now = links_[pair];
    if (now.life != life) return;
    // Nothing sent meanwhile arrives; what waits for the end of the hold is lost.
    for (Instant& last : now.last) last = std::min(last, clock_.now());
    End(pair, Millis(1), /*lossy=*/true);
  });
}

void SimNet::HoldAll(InstanceId id, Duration duration) {
  std::vector<Pair> pairs;
  for (const auto& [pair, link] : links_) {
    if (pair.first == id || pair.second == id) pairs.push_back(pair);
  }
  for (const Pair& pair : pairs) HoldLink(pair.first, pair.second, duration);
}

}  // namespace weir::sim
