// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/sim_node.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/check.h"

namespace weir::sim {
namespace {

// A core that wants a tick again and again at one instant would hang a real process.
constexpr uint32_t kSpinsMax = 10000;

}  // namespace

void SimNode::Freeze(Instant until) {
  frozen_until_ = std::max(frozen_until_, until);
  world_.clock().At(frozen_until_, [this, alive = alive_] {
    if (*alive) Pump();
  });
}

void SimNode::Handle(Task task) {
  inbox_.push_back(std::move(task));
  Pump();
}

void SimNode::Pump() {
  if (pumping_) return;  // the turn under way takes it
  pumping_ = true;
  const auto alive = alive_;
  while (*alive && !inbox_.empty() && MayHandle()) {
    Task task = std::move(inbox_.front());
    inbox_.pop_front();
    task();
  }
  if (*alive) pumping_ = false;
}

void SimNode::Settle(Instant deadline) {
  ++events_;
  const Instant now = world_.clock().now();
  if (deadline != tick_at_) {
    tick_at_ = deadline;
    const uint64_t turn = ++tick_turn_;
    if (deadline != kNever) {
      spins_ = deadline <= now && spun_at_ == now ? spins_ + 1 : 0;
      spun_at_ = now;
      if (spins_ > kSpinsMax) {
        world_.Violate(absl::StrCat("instance ", id_.value, " spins on a deadline that is due"));
        return;
      }
      world_.clock().At(deadline, [this, turn, alive = alive_] {
        if (!*alive || turn != tick_turn_) return;
        tick_at_ = kNever;
        Handle([this] { Tick(); });
      });
    }
  }
  world_.Inspect(*this);
}

EngineNode::EngineNode(World* world, Options options)
    : SimNode(world, InstanceId(options.hello.instance()),
              options.prefill ? Role::kPrefill : Role::kDecode),
      options_(std::move(options)) {
  WEIR_CHECK((options_.prefill == nullptr) != (options_.decode == nullptr));
  device_ = std::make_unique<SimDevice>(&world_.clock(), options_.seed, options_.device,
                                        std::move(options_.model),
                                        [this](const engine::StepResult& result) {
                                          // The result of a step comes before anything that waited.
                                          const auto keep = alive();
                                          if (frozen()) {
                                            auto copy = std::make_shared<engine::StepResult>(result);
                                            Handle([this, copy] { Deliver(engine::StepDone{*copy}); });
                                            return;
                                          }
                                          Deliver(engine::StepDone{result});
                                          if (*keep) Pump();
                                        });
}

engine::EngineState EngineNode::State() const {
  return options_.prefill ? options_.prefill->state() : options_.decode->state();
}

bool EngineNode::MayHandle() const {
  return !frozen() && !(options_.blocking && device_->running());
}

std::string EngineNode::Check(bool deep) const {
  std::string found = options_.prefill ? options_.prefill->CheckInvariants()
                                       : options_.decode->CheckInvariants();
  if (found.empty() && deep) {
    found = options_.prefill ? options_.prefill->CheckPages() : options_.decode->CheckPages();
  }
  return found;
}

std::string EngineNode::Leftover() const {
  const engine::EngineState s = State();
  if (s.slots_used == 0 && s.pages_used[0] == 0 && s.pages_used[1] == 0 && s.leases == 0 &&
      s.queued == 0 && s.fetches == 0 && !s.step_running) {
    return {};
  }
  return absl::StrCat("slots ", s.slots_used, ", encoder pages ", s.pages_used[0],
                      ", decoder pages ", s.pages_used[1], ", leases ", s.leases, ", queued ",
                      s.queued, ", fetches ", s.fetches, s.step_running ? ", a step" : "");
}

void EngineNode::OnLinkUp(InstanceId peer) {
  Handle([this, peer] {
    const pb::Hello& hello = world_.HelloOf(peer);
    const Role role = static_cast<Role>(hello.role());
    Deliver(engine::PeerUp{peer, role, hello.arena()});
  });
}

void EngineNode::OnLinkDown(InstanceId peer) {
  Handle([this, peer] { Deliver(engine::PeerDown{peer}); });
}

void EngineNode::OnMessage(InstanceId from, const pb::Envelope& message) {
  if (message.has_hello_refused()) return;
  Handle([this, from, copy = std::make_shared<pb::Envelope>(message)] {
    Deliver(engine::Received{from, *copy});
  });
}

void EngineNode::Drain(Instant deadline) {
  Handle([this, deadline] { Deliver(engine::DrainRequested{deadline}); });
}

void EngineNode::Tick() { Deliver(engine::Tick{}); }

void EngineNode::Deliver(const engine::EngineEvent& event) {
  const Instant now = world_.clock().now();
  actions_.Clear();
  if (options_.prefill) {
    options_.prefill->On(now, event, &actions_);
  } else {
    options_.decode->On(now, event, &actions_);
  }
  Perform();
  if ((actions_.poisoned || actions_.drained) && !exit_told_) {
    exit_told_ = true;
    // The process ends after this event, not within it.
    world_.clock().At(now, [world = &world_, id = id(), poisoned = actions_.poisoned] {
      world->OnExit(id, poisoned);
    });
  }
  Settle(options_.prefill ? options_.prefill->NextDeadline() : options_.decode->NextDeadline());
}

void EngineNode::Perform() {
  SimNet& net = world_.net();
  for (const auto& dial : actions_.dials) net.Connect(id(), dial.instance, /*kept=*/false);
  for (const auto& send : actions_.sends) net.Send(id(), send.to, send.message);
  for (const auto& fetch : actions_.fetches) {
    world_.transfer().Post(id(), fetch, [this, alive = alive()](engine::FetchDone done) {
      if (*alive) Handle([this, done] { Deliver(done); });
    });
  }
  for (const auto& fetch : actions_.cancels) world_.transfer().Cancel(id(), fetch);
  PerformTokens();
  if (actions_.launch != nullptr) device_->Launch(*actions_.launch);
}

void EngineNode::PerformTokens() {
  std::map<InstanceId, pb::Envelope> messages;
  for (const engine::TokenOut& out : actions_.tokens) {
    pb::TokenRow& row = *messages[out.key.router].mutable_tokens()->add_rows();
    row.mutable_key()->set_router(out.key.router.value);
    row.mutable_key()->set_request(out.key.request.value);
    row.mutable_key()->set_attempt(out.attempt.value);
    row.set_position(out.position);
    row.set_cached_tokens(out.cached_tokens);
    row.set_finish(out.finish);
    if (out.finish == pb::FINISH_REASON_FAILED) {
      row.mutable_failure()->set_reason(static_cast<uint32_t>(out.reason));
    }
    for (uint32_t i = 0; i < out.id_count; ++i) {
      row.add_ids(actions_.ids[out.id_offset + i]);
      if (out.score_offset < 0) continue;
      const auto& score = actions_.scores[static_cast<size_t>(out.score_offset) + i];
      pb::TokenLogprob& logprob = *row.add_logprobs();
      logprob.set_logprob(score.logprob);
      for (const auto& [top_id, top_logprob] : score.top) {
        logprob.add_top_ids(top_id);
        logprob.add_top_logprobs(top_logprob);
      }
    }
  }
  for (const auto& [to, message] : messages) world_.net().Send(id(), to, message);
}

RouterNode::RouterNode(World* world, InstanceId id, const router::RouterCore::Config& config)
    : SimNode(world, id, Role::kRouter), core_(config) {}

void RouterNode::Submit(router::Submit submit) {
  Handle([this, event = std::move(submit)] { Deliver(event); });
}

void RouterNode::Withdraw(RequestId request, bool satisfied) {
  Handle([this, request, satisfied] { Deliver(router::Withdraw{request, satisfied}); });
}

void RouterNode::Drain(Instant deadline) {
  Handle([this, deadline] { Deliver(router::DrainRequested{deadline}); });
}

std::string RouterNode::Leftover() const {
  const router::RouterState s = core_.state();
  if (s.requests == 0 && s.queued == 0 && s.journals == 0 && s.journal_tokens == 0) return {};
  return absl::StrCat("requests ", s.requests, ", queued ", s.queued, ", journals ", s.journals,
                      ", journal tokens ", s.journal_tokens);
}

void RouterNode::OnLinkUp(InstanceId peer) {
  Handle([this, peer] { Deliver(router::PeerUp{peer, world_.HelloOf(peer)}); });
}

void RouterNode::OnLinkDown(InstanceId peer) {
  Handle([this, peer] { Deliver(router::PeerDown{peer}); });
}

void RouterNode::OnMessage(InstanceId from, const pb::Envelope& message) {
  Handle([this, from, copy = std::make_shared<pb::Envelope>(message)] {
    Deliver(router::Received{from, *copy});
  });
}

void RouterNode::Tick() { Deliver(router::Tick{}); }

void RouterNode::Deliver(const router::RouterEvent& event) {
  actions_.Clear();
  core_.On(world_.clock().now(), event, &actions_);
  for (const auto& send : actions_.sends) world_.net().Send(id(), send.to, send.message);
  for (const auto& delivery : actions_.deliveries) world_.OnDelivery(id(), delivery);
  for (const auto& close : actions_.closes) world_.OnClose(id(), close);
  Settle(core_.NextDeadline());
}

}  // namespace weir::sim
