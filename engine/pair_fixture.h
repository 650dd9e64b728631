// SPDX-License-Identifier: Apache-2.0
//
// For tests: one prefill core and one or two decode cores joined by perfect links, with time, reads
// and steps under the test's control. The test plays the router. After every event the invariants
// of all cores are checked.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/decode/decode_core.h"
#include "engine/prefill/prefill_core.h"
#include "engine/run/fake_step_model.h"
#include "engine/run/wire.h"
#include "gtest/gtest.h"

namespace weir::engine {

inline constexpr InstanceId kRouter{1};
inline constexpr InstanceId kPrefill{2};
inline constexpr InstanceId kDecode{3};
inline constexpr InstanceId kDecode2{4};

inline AttemptKey Id(uint64_t request, uint32_t attempt = 1) {
  return {.request = {.router = kRouter, .request = RequestId(request)},
          .attempt = Attempt(attempt)};
}

inline std::vector<TokenId> Prompt(size_t count, uint64_t seed = 1) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(RandomBits(seed, 5, i) % kFakeVocab));
  }
  return tokens;
}

class Pair {
 public:
  struct Options {
    bool same_arena = false;
    bool reuse = false;  // requests share prefixes
    PageId pages = 64;  // of each engine
    PageId states = 16;
    PrefillCore::Config prefill;
    DecodeCore::Config decode;
  };

  Pair() : Pair(Options{}) {}
  explicit Pair(Options options) : options_(std::move(options)) {
    const int engines = 3;
    const PageId pages = options_.pages, states = options_.states;
    arena_ = std::make_unique<FakeKv>(pages * engines, states * engines);
    for (int i = 0; i < engines; ++i) {
      const InstanceId id(kPrefill.value + static_cast<uint64_t>(i));
      Node& node = nodes_[id];
      node.id = id;
      KvShare share = ShareOf(FakeMemory(pages * engines, states * engines), i, engines);
      if (!options_.same_arena) {
        node.own = std::make_unique<FakeKv>(pages, states);
        share = ShareOf(FakeMemory(pages, states));
      }
      node.kv = options_.same_arena ? arena_.get() : node.own.get();
      node.model = std::make_unique<FakeStepModel>(node.kv);
      Make(&node, share);
      Give(id, PeerUp{.instance = kRouter, .role = Role::kRouter});
    }
    node(kPrefill).out.sends.clear();
    to_router.clear();
  }

  PrefillCore& prefill() { return *node(kPrefill).prefill; }
  DecodeCore& decode(InstanceId id = kDecode) { return *node(id).decode; }

  // What the router does.
  void Reserve(AttemptKey id, const std::vector<TokenId>& tokens, size_t prompt, uint32_t new_max,
               const std::function<void(pb::Reserve*)>& edit = nullptr, InstanceId to = kDecode) {
    pb::Envelope envelope;
    pb::Reserve& m = *envelope.mutable_reserve();
    KeyTo(id, m.mutable_key());
    m.set_token_count(static_cast<uint32_t>(tokens.size()));
    m.set_prompt_tokens(static_cast<uint32_t>(prompt));
    m.set_new_tokens_max(new_max);
    m.mutable_emitted()->Add(tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end());
    if (edit) edit(&m);
    Deliver(to, kRouter, envelope);
  }
  void Prefill(AttemptKey id, const std::vector<TokenId>& tokens, size_t prompt,
               InstanceId sink = kDecode, const std::function<void(pb::Prefill*)>& edit = nullptr) {
    pb::Envelope envelope;
    pb::Prefill& m = *envelope.mutable_prefill();
    KeyTo(id, m.mutable_key());
    m.mutable_tokens()->Add(tokens.begin(), tokens.end());
    m.set_prompt_tokens(static_cast<uint32_t>(prompt));
    // As a router does: a sink that has not reserved yet is attached when it has.
    if (queued_.contains(id)) {
      queued_[id] = sink;
    } else {
      m.set_sink_instance(sink.value);
    }
    m.set_sink_address("there");
    if (options_.reuse) m.set_key_root(std::string(32, 'k'));
    if (edit) edit(&m);
    Deliver(kPrefill, kRouter, envelope);
  }
  void Attach(AttemptKey id, InstanceId sink) {
    pb::Envelope envelope;
    KeyTo(id, envelope.mutable_attach()->mutable_key());
    envelope.mutable_attach()->set_sink_instance(sink.value);
    Deliver(kPrefill, kRouter, envelope);
  }
  void Cancel(AttemptKey id, InstanceId to = kDecode) {
    pb::Envelope envelope;
    KeyTo(id, envelope.mutable_cancel()->mutable_key());
    Deliver(to, kRouter, envelope);
  }
  void Forget(AttemptKey id) {
    pb::Envelope envelope;
    KeyTo(id, envelope.mutable_forget()->mutable_key());
    Deliver(kPrefill, kRouter, envelope);
  }
  void Renew(AttemptKey id, InstanceId to) {
    pb::Envelope envelope;
    KeyTo(id, envelope.mutable_renew()->add_keys());
    Deliver(to, kRouter, envelope);
  }

  void Deliver(InstanceId to, InstanceId from, const pb::Envelope& envelope) {
    Give(to, Received{.from = from, .message = envelope});
  }
  template <class E>
  void Give(InstanceId to, const E& event) {
    Node& n = node(to);
    if (n.dead) return;
    const EngineEvent wrapped(event);
    if (n.prefill) {
      n.prefill->On(now, wrapped, &n.out);
    } else {
      n.decode->On(now, wrapped, &n.out);
    }
    Perform(&n);
    Check(n);
  }
  void Tick() {
    for (auto& [id, n] : nodes_) Give(id, engine::Tick{});
  }
  void Pass(Duration duration) {
    now += duration;
    Tick();
  }
  // An engine dies; the others see its streams end.
  void Kill(InstanceId id) {
    node(id).dead = true;
    for (auto& [other, n] : nodes_) {
      if (n.peers.erase(id) > 0) Give(other, PeerDown{.instance = id});
    }
  }

  // One thing that is under way, oldest first. False when there is none.
  bool RunOne() {
    if (work_.empty()) return false;
    auto next = std::move(work_.front());
    work_.pop_front();
    next();
    return true;
  }
  void Run(int max = 100000) {
    while (max-- > 0 && RunOne()) {
    }
    EXPECT_GT(max, 0);
  }
  // Runs until `until` holds; reports whether it ever did.
  bool RunUntil(const std::function<bool()>& until) {
    while (!until()) {
      if (!RunOne()) return false;
    }
    return true;
  }

  struct Answer {
    std::vector<TokenId> ids;
    pb::FinishReason finish = pb::FINISH_REASON_UNSPECIFIED;
    Reason reason = Reason::kOk;
    Position first = 0;
    Position cached = 0;  // tokens, as the client is told
  };
  Answer& answer(AttemptKey id) { return answers[id]; }
  template <class Has>
  int CountToRouter(Has has) const {
    int count = 0;
    for (const pb::Envelope& m : to_router) count += has(m) ? 1 : 0;
    return count;
  }
  const pb::Failure* Failure(AttemptKey id) const {
    for (auto it = to_router.rbegin(); it != to_router.rend(); ++it) {
      if (it->has_prefill_failed() && KeyFrom(it->prefill_failed().key()) == id) {
        return &it->prefill_failed().failure();
      }
      if (it->has_reserve_failed() && KeyFrom(it->reserve_failed().key()) == id) {
        return &it->reserve_failed().failure();
      }
    }
    return nullptr;
  }
  void ExpectIdle() {
    for (auto& [id, n] : nodes_) {
      if (n.dead) continue;
      const EngineState s = n.prefill ? n.prefill->state() : n.decode->state();
      EXPECT_EQ(s.slots_used, 0u);
      EXPECT_EQ(s.pages_used[0], 0u);
      EXPECT_EQ(s.pages_used[1], 0u);
      EXPECT_EQ(s.state_pages_used, 0u);
      EXPECT_EQ(s.queued, 0u);
      EXPECT_EQ(s.fetches, 0u);
      EXPECT_EQ(s.pages_total[0], static_cast<uint32_t>(options_.pages));
    }
  }

  Instant now{Millis(1000)};
  bool hold_fetches = false;      // reads stay under way until ReleaseFetches
  bool void_next_step = false;    // of any engine
  Reason fetch_result = Reason::kOk;
  std::vector<pb::Envelope> to_router;
  std::map<AttemptKey, Answer> answers;
  bool drained[8] = {};
  uint64_t fetched_pages = 0;
  uint64_t cancels = 0;

  void ReleaseFetches() {
    for (auto& task : held_) work_.push_back(std::move(task));
    held_.clear();
  }

 private:
  struct Node {
    InstanceId id;
    std::unique_ptr<FakeKv> own;
    FakeKv* kv = nullptr;
    std::unique_ptr<FakeStepModel> model;
    std::unique_ptr<PrefillCore> prefill;
    std::unique_ptr<DecodeCore> decode;
    std::map<InstanceId, bool> peers;
    EngineActions out;
    bool dead = false;
  };

  Node& node(InstanceId id) { return nodes_.at(id); }
  uint64_t arena_id() const { return options_.same_arena ? 99 : 0; }

  void Make(Node* n, const KvShare& share) {
    if (n->id == kPrefill) {
      PrefillCore::Config config = options_.prefill;
      config.model = FakeModelInfo();
      config.kv = share;
      config.arena = arena_id();
      config.hit_tokens_min = 2 * kFakeBlock;
      n->prefill = std::make_unique<PrefillCore>(config);
    } else {
      DecodeCore::Config config = options_.decode;
      config.model = FakeModelInfo();
      config.kv = share;
      config.arena = arena_id();
      n->decode = std::make_unique<DecodeCore>(config);
    }
  }

  void Check(const Node& n) {
    ASSERT_EQ(n.prefill ? n.prefill->CheckPages() : n.decode->CheckPages(), "");
  }

  void Connect(InstanceId a, InstanceId b) {
    const auto role = [](InstanceId id) { return id == kPrefill ? Role::kPrefill : Role::kDecode; };
    node(a).peers[b] = node(b).peers[a] = true;
    Give(a, PeerUp{.instance = b, .role = role(b), .arena = arena_id()});
    Give(b, PeerUp{.instance = a, .role = role(a), .arena = arena_id()});
  }

  void Perform(Node* n) {
    EngineActions out = std::move(n->out);
    n->out.Clear();
    for (const auto& dial : out.dials) {
      work_.push_back([this, from = n->id, to = dial.instance] {
        if (node(to).dead) return Give(from, PeerDown{.instance = to});
        Connect(from, to);
      });
    }
    for (auto& send : out.sends) {
      if (send.to == kRouter) {
        OnRouter(send.message);
        continue;
      }
      work_.push_back([this, from = n->id, to = send.to, m = std::move(send.message)] {
        if (!node(to).dead && node(to).peers.contains(from)) Deliver(to, from, m);
      });
    }
    for (const Fetch& fetch : out.fetches) StartFetch(n, fetch);
    cancels += out.cancels.size();
    for (const TokenOut& row : out.tokens) TakeRow(row, out);
    if (out.drained) drained[n->id.value] = true;
    if (out.launch != nullptr) {
      work_.push_back([this, id = n->id, plan = out.launch] {
        Node& at = node(id);
        if (at.dead) return;
        StepResult result = at.model->Run(*plan);
        if (std::exchange(void_next_step, false)) result.health = StepHealth::kVoid;
        Give(id, StepDone{.result = result});
      });
    }
  }

  void OnRouter(const pb::Envelope& m) {
    to_router.push_back(m);
    if (m.has_reserve_queued()) queued_[KeyFrom(m.reserve_queued().key())];
    if (!m.has_reserved()) return;
    const AttemptKey id = KeyFrom(m.reserved().key());
    const auto queued = queued_.extract(id);
    if (queued.empty() || queued.mapped() == InstanceId()) return;
    work_.push_back([this, id, sink = queued.mapped()] { Attach(id, sink); });
  }

  void StartFetch(Node* n, const Fetch& fetch) {
    std::function<void()> task = [this, id = n->id, fetch] {
      Node& to = node(id);
      if (to.dead) return;
      if (fetch_result == Reason::kOk && !node(fetch.from).dead) {
        for (const PageRead& read : fetch.reads) Copy(*node(fetch.from).kv, to.kv, read);
        fetched_pages += fetch.reads.size();
      }
      Give(id, FetchDone{.fetch = fetch.id, .reason = fetch_result});
    };
    (hold_fetches ? held_ : work_).push_back(std::move(task));
  }

  static void Copy(const FakeKv& from, FakeKv* to, const PageRead& read) {
    const auto source = static_cast<size_t>(read.from), target = static_cast<size_t>(read.to);
    if (read.kind == PageRead::Kind::kState) {
      to->states[target] = from.states[source];
    } else {
      const int part = static_cast<int>(read.part);
      to->pages[part][target] = from.pages[part][source];
    }
  }

  void TakeRow(const TokenOut& row, const EngineActions& out) {
    Answer& a = answers[{.request = row.key, .attempt = row.attempt}];
    EXPECT_EQ(a.finish, pb::FINISH_REASON_UNSPECIFIED) << "a row after the finish";
    if (a.ids.empty()) {
      a.first = row.position;
      a.cached = row.cached_tokens;
    }
    EXPECT_EQ(row.position, a.first + a.ids.size());
    a.ids.insert(a.ids.end(), out.ids.begin() + row.id_offset,
                 out.ids.begin() + row.id_offset + row.id_count);
    a.finish = row.finish;
    a.reason = row.reason;
  }

  const Options options_;
  std::unique_ptr<FakeKv> arena_;
  std::map<InstanceId, Node> nodes_;
  std::map<AttemptKey, InstanceId> queued_;  // reservations that wait, and where to
  std::deque<std::function<void()>> work_;
  std::deque<std::function<void()>> held_;
};

}  // namespace weir::engine
