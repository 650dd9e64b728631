// SPDX-License-Identifier: Apache-2.0
//
// What must hold in a simulated cluster: after every event (accounts of the core that ran; tokens in
// order, once, and equal to the oracle's), when a request ends, and when all is silent (nothing is
// held, the counters add up, the canary sings). Part of SimCluster.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "replay/sim/sim_cluster.h"

namespace weir::sim {
namespace {

// Page by page once in so many events of a core; counts are checked after each.
constexpr uint64_t kDeepEvery = 61;
constexpr Duration kSilence = std::chrono::seconds(10);

std::string NameOf(const ClientRecord& record) {
  return absl::StrCat("request ", record.request.value, " of router ", record.router.value);
}

// May a client meet this when machines die and pools are full?
bool Excusable(Reason reason) {
  switch (reason) {
    case Reason::kQueueFull:
    case Reason::kNoCapacity:
    case Reason::kDeadline:
    case Reason::kPeerLost:
    case Reason::kLeaseExpired:
    case Reason::kCorrupt:
      return true;
    default:
      return false;
  }
}

}  // namespace

void SimCluster::Violate(std::string sentence) {
  if (violation_.empty()) violation_ = std::move(sentence);
}

void SimCluster::Inspect(SimNode& node) {
  const std::string found = node.Check(node.events() % kDeepEvery == 0);
  if (!found.empty()) Violate(absl::StrCat("instance ", node.id().value, ": ", found));
}

ClientRecord* SimCluster::FindClient(InstanceId router, RequestId request) {
  const auto found = client_of_.find({router, request});
  return found == client_of_.end() ? nullptr : clients_[found->second].get();
}

void SimCluster::OnDelivery(InstanceId router, const router::RouterActions::Deliver& delivery) {
  ClientRecord* record = FindClient(router, delivery.request);
  if (record == nullptr) return Violate("tokens for a request nobody made");
  if (record->close) return Violate(absl::StrCat(NameOf(*record), ": tokens after the last word"));
  if (record->withdrawn) return;  // crossed with the client's leaving
  if (delivery.ids.empty()) return Violate(absl::StrCat(NameOf(*record), ": empty delivery"));
  if (delivery.first != record->received.size()) {
    return Violate(absl::StrCat(NameOf(*record), ": token ", delivery.first, " came where ",
                                record->received.size(), " was due"));
  }
  if (record->oracle == nullptr) {
    record->oracle = std::make_unique<engine::HashOracle>(
        config_.model, record->spec.prompt, record->tail_start, SamplingOf(record->spec));
  }
  const size_t total = record->received.size() + delivery.ids.size();
  const auto& truth = record->oracle->Answer(static_cast<uint32_t>(total));
  for (size_t i = 0; i < delivery.ids.size(); ++i) {
    const size_t at = delivery.first + i;
    if (at < truth.size() && truth[at] == delivery.ids[i]) continue;
    return Violate(absl::StrCat(NameOf(*record), ": token ", at, " is ", delivery.ids[i],
                                ", but undisturbed it is ",
                                at < truth.size() ? absl::StrCat(truth[at]) : "the end"));
  }
  if (record->spec.top_logprobs > 0) {
    if (delivery.logprobs.size() != delivery.ids.size()) {
      return Violate(absl::StrCat(NameOf(*record), ": ", delivery.logprobs.size(),
                                  " logprobs for ", delivery.ids.size(), " tokens"));
    }
    for (size_t i = 0; i < delivery.ids.size(); ++i) {
      if (delivery.logprobs[i].logprob() == record->oracle->scores()[delivery.first + i].logprob) {
        continue;
      }
      return Violate(absl::StrCat(NameOf(*record), ": logprob ", delivery.first + i, " differs"));
    }
    record->scores += static_cast<uint32_t>(delivery.logprobs.size());
  }
  if (record->received.empty()) {
    record->first_token = now();
  } else {
    record->longest_gap = std::max(record->longest_gap, now() - record->last_token);
  }
  record->last_token = now();
  record->received.insert(record->received.end(), delivery.ids.begin(), delivery.ids.end());
  if (record->spec.leave_after && record->received.size() >= *record->spec.leave_after) {
    Withdraw(client_of_[{router, delivery.request}], record->spec.satisfied);
  }
}

void SimCluster::OnClose(InstanceId router, const router::RouterActions::Close& close) {
  ClientRecord* record = FindClient(router, close.request);
  if (record == nullptr) return Violate("the last word about a request nobody made");
  if (record->close) return Violate(absl::StrCat(NameOf(*record), ": two last words"));
  if (record->withdrawn) return;
  record->close = close;
  CheckClose(*record);
}

void SimCluster::CheckClose(const ClientRecord& record) {
  const auto& close = *record.close;
  if (!close.status.ok()) {
    const Reason reason = ReasonOf(close.status);
    const bool asked_too_much = reason == Reason::kTooLong || reason == Reason::kBadField;
    if (asked_too_much && record.received.empty() && close.attempts == 0) return;
    if (config_.failures_allowed && Excusable(reason)) return;
    return Violate(absl::StrCat(NameOf(record), " failed: ", close.status.ToString()));
  }
  if (close.answer_tokens != record.received.size()) {
    return Violate(absl::StrCat(NameOf(record), ": usage says ", close.answer_tokens,
                                " tokens, the client got ", record.received.size()));
  }
  if (close.prompt_tokens != record.spec.prompt.size()) {
    return Violate(absl::StrCat(NameOf(record), ": usage counts a prompt of ",
                                close.prompt_tokens));
  }
  const bool full = record.spec.new_tokens_max > 0
                        ? record.received.size() == record.spec.new_tokens_max
                        : record.received.size() > 0;
  if (close.finish == pb::FINISH_REASON_LENGTH) {
    if (!full) Violate(absl::StrCat(NameOf(record), ": ended early as if by length"));
    return;
  }
  if (close.finish != pb::FINISH_REASON_STOP) {
    return Violate(absl::StrCat(NameOf(record), ": ended without a finish reason"));
  }
  auto* oracle = record.oracle.get();
  if (oracle == nullptr) return;  // stopped before the first token
  oracle->Answer(static_cast<uint32_t>(record.received.size()) + 1);
  if (!oracle->stopped()) Violate(absl::StrCat(NameOf(record), ": stopped where no stop was due"));
}

std::vector<TokenId> SimCluster::Oracle(ClientId id) {
  const RequestSpec& spec = clients_[id]->spec;
  engine::HashOracle oracle(config_.model, spec.prompt, clients_[id]->tail_start,
                            SamplingOf(spec));
  return oracle.Answer(spec.new_tokens_max);
}

bool SimCluster::Finish() {
  if (!RunUntil([this] { return AllOver(); }, config_.deadline + std::chrono::seconds(30))) {
    const auto stuck = std::find_if(clients_.begin(), clients_.end(),
                                    [](const auto& c) { return !c->over(); });
    if (stuck != clients_.end()) {
      const auto id = static_cast<ClientId>(stuck - clients_.begin());
      Violate(absl::StrCat(NameOf(**stuck), " never ended; decode says \"", DecodePhase(id),
                           "\", prefill says \"", PrefillPhase(id), "\""));
    }
    return false;
  }
  Heal();
  transfer_.Mend();
  for (const auto& [id, node] : engines_) node->device().Mend();
  return Silence() && AskCanary();
}

// Without any new request, everything is given back within lease and a little.
bool SimCluster::Silence() {
  const Duration quiet = std::max(config_.lease, config_.net.dead_after) + kSilence;
  return RunFor(quiet) && CheckBase() && CheckCounters();
}

bool SimCluster::CheckBase() {
  const auto look = [this](const SimNode& node) {
    std::string found = node.Leftover();
    if (!found.empty()) {
      Violate(absl::StrCat("instance ", node.id().value, " still holds in silence: ", found));
    }
    found = node.Check(/*deep=*/true);
    if (!found.empty()) Violate(absl::StrCat("instance ", node.id().value, ": ", found));
  };
  for (const auto& [id, node] : routers_) look(*node);
  for (const auto& [id, node] : engines_) look(*node);
  if (transfer_.outstanding() > 0) Violate("a page read is still under way in silence");
  return violation_.empty();
}

bool SimCluster::CheckCounters() {
  for (const auto& [id, node] : routers_) {
    const router::RouterState s = node->core().state();
    if (s.submitted != s.succeeded + s.failed + s.cancelled + s.refused) {
      Violate(absl::StrCat("router ", id.value, ": submitted ", s.submitted, " is not succeeded ",
                           s.succeeded, " + failed ", s.failed, " + cancelled ", s.cancelled,
                           " + refused ", s.refused));
    }
    uint64_t made = 0;
    uint64_t tokens = 0;
    bool exact = true;
    for (const auto& client : clients_) {
      if (client->router != id) continue;
      ++made;
      tokens += client->received.size();
      exact = exact && !client->withdrawn;
    }
    if (made != s.submitted || (exact && tokens != s.tokens_taken)) {
      Violate(absl::StrCat("router ", id.value, " counts ", s.submitted, " requests and ",
                           s.tokens_taken, " tokens, clients ", made, " and ", tokens));
    }
  }
  return violation_.empty();
}

// A fixed greedy request through the normal path succeeds when everything is quiet.
bool SimCluster::AskCanary() {
  const bool allowed = std::exchange(config_.failures_allowed, false);
  RequestSpec spec;
  spec.prompt_tokens = std::min(24u, config_.model.block_tokens * config_.blocks / 2);
  spec.new_tokens_max = std::min(16u, config_.model.block_tokens * config_.blocks / 4);
  spec.stop_tokens.clear();
  const ClientId canary = Submit(spec);
  const bool over = RunUntil([this, canary] { return client(canary).over(); });
  if (!over || !client(canary).succeeded()) Violate("the canary did not sing");
  config_.failures_allowed = allowed;
  return violation_.empty() && RunFor(config_.lease + kSilence) && CheckBase() && CheckCounters();
}

}  // namespace weir::sim
