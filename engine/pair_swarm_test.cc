// SPDX-License-Identifier: Apache-2.0
//
// Many small random lives of one prefill and two decode cores under a careless router: late
// attaches, cancels, repeated and outdated messages, reads that hang, void steps, deaths. Whatever
// text comes out must be right, the accounts exact after every event, and all free at the end.
#include <map>
#include <sstream>

#include "base/stdx/random.h"
#include "engine/pair_fixture.h"

namespace weir::engine {
namespace {

constexpr uint32_t kNew = 24;

class Life {
 public:
  Life(uint64_t seed, bool same_arena)
      : random_(seed), pair_(Options(&random_, same_arena)), same_arena_(same_arena) {}

  void Run() {
    const auto requests = static_cast<uint64_t>(random_.Between(4, 12));
    for (uint64_t i = 1; i <= requests; ++i) Ask(i);
    for (int i = 0; i < 1500; ++i) {
      if (random_.Chance(0.06)) Meddle();
      if (random_.Chance(0.1)) Follow();
      if (!pair_.RunOne()) {
        pair_.ReleaseFetches();
        Follow();
      }
      if (testing::Test::HasFatalFailure()) return;
    }
    pair_.hold_fetches = false;
    // What the router has forgotten somewhere ends with its lease.
    for (int round = 0; round < 80; ++round) {
      pair_.ReleaseFetches();
      pair_.Run();
      Follow();
      for (auto& [i, r] : requests_) {
        if (r.over) continue;
        pair_.Renew(Id(i, r.attempt), r.decode);
        pair_.Renew(Id(i, r.attempt), kPrefill);
      }
      pair_.Pass(Millis(1000));
    }
    for (auto& [i, r] : requests_) {
      EXPECT_TRUE(r.over) << "request " << i << " attempt " << r.attempt << Describe();
      EXPECT_EQ(r.text, FakeAnswer(r.prompt, r.text.size())) << i;
      EXPECT_TRUE(r.cancelled || r.text.size() == kNew) << i;
      pair_.Forget(Id(i, r.attempt));
      pair_.Cancel(Id(i, r.attempt), r.decode);
    }
    pair_.Run();
    pair_.Pass(Millis(31000));
    pair_.Run();
    pair_.ExpectIdle();
  }

 private:
  struct Request {
    std::vector<TokenId> prompt;
    std::vector<TokenId> text;  // of the attempts before
    uint32_t attempt = 0;
    size_t seen_messages = 0;
    InstanceId decode = kDecode;
    bool whole = false;
    bool over = false;
    bool cancelled = false;
  };

  static Pair::Options Options(Random* random, bool same_arena) {
    Pair::Options options;
    options.same_arena = same_arena;
    options.pages = static_cast<PageId>(random->Between(14, 40));
    options.states = 12;
    options.reuse = random->Chance(0.7);
    options.prefill.window_states = static_cast<uint32_t>(random->Between(0, 3));
    options.prefill.chunk_rows = static_cast<uint32_t>(random->Between(1, 20));
    options.prefill.slots = static_cast<uint32_t>(random->Between(1, 4));
    options.prefill.retain_max = static_cast<uint32_t>(random->Between(0, 4));
    options.decode.slots = static_cast<uint32_t>(random->Between(1, 6));
    options.decode.growth_blocks = static_cast<uint32_t>(random->Between(0, 3));
    return options;
  }

  void Ask(uint64_t i) {
    Request& r = requests_[i];
    r.prompt = Prompt(static_cast<size_t>(random_.Between(1, 28)), i);
    if (random_.Chance(0.6)) {  // many begin alike
      const auto common = Prompt(20, 0);
      const auto same = static_cast<std::ptrdiff_t>(
          random_.Below(std::min(common.size(), r.prompt.size()) + 1));
      std::copy(common.begin(), common.begin() + same, r.prompt.begin());
    }
    Attempt(i);
  }

  void Attempt(uint64_t i) {
    Request& r = requests_[i];
    ++r.attempt;
    r.seen_messages = pair_.to_router.size();
    if (decode2_only_ || random_.Chance(0.3)) r.decode = kDecode2;
    if (!decode2_only_ && random_.Chance(0.3)) r.decode = kDecode;
    std::vector<TokenId> tokens = r.prompt;
    tokens.insert(tokens.end(), r.text.begin(), r.text.end());
    const AttemptKey id = Id(i, r.attempt);
    pair_.Reserve(id, tokens, r.prompt.size(), kNew - static_cast<uint32_t>(r.text.size()),
                  [&r](pb::Reserve* m) { m->set_whole(r.whole); }, r.decode);
    pair_.Prefill(id, tokens, r.prompt.size(), r.decode);
  }

  std::string Describe() {
    std::ostringstream out;
    for (const auto& r : pair_.prefill().Requests()) {
      out << "\nprefill " << r.key.request << "." << r.attempt << " " << r.phase << " sink "
          << r.sink << " computed " << r.computed << "/" << r.tokens;
    }
    for (const InstanceId id : {kDecode, kDecode2}) {
      for (const auto& s : pair_.decode(id).Sequences()) {
        out << "\ndecode " << id << " " << s.key.request << "." << s.attempt << " " << s.phase
            << " cursor " << s.cursor << " fetches " << s.fetches;
      }
    }
    return out.str();
  }

  // What a router does about what it heard.
  void Follow() {
    for (auto& [i, r] : requests_) {
      if (r.over) continue;
      Pair::Answer& a = pair_.answer(Id(i, r.attempt));
      bool again = false;
      if (a.finish == pb::FINISH_REASON_LENGTH) {
        r.over = true;
      } else if (a.finish != pb::FINISH_REASON_UNSPECIFIED) {
        again = true;
        r.whole |= a.finish == pb::FINISH_REASON_PREEMPTED;
      } else if (decode2_only_ && r.decode == kDecode) {
        again = true;
      } else {
        again = Failed(i, &r);
      }
      if (!again && !r.over) continue;
      r.text.insert(r.text.end(), a.ids.begin(), a.ids.end());
      if (r.text.size() == kNew) r.over = true;
      if (!r.over) {
        pair_.Cancel(Id(i, r.attempt), r.decode);
        Attempt(i);
      } else if (random_.Chance(0.7)) {
        pair_.Forget(Id(i, r.attempt));
      }
    }
  }

  bool Failed(uint64_t i, Request* r) {
    bool failed = false;
    for (; r->seen_messages < pair_.to_router.size(); ++r->seen_messages) {
      const pb::Envelope& m = pair_.to_router[r->seen_messages];
      failed |= m.has_prefill_failed() && KeyFrom(m.prefill_failed().key()) == Id(i, r->attempt);
      failed |= m.has_reserve_failed() && KeyFrom(m.reserve_failed().key()) == Id(i, r->attempt);
    }
    return failed;
  }

  void Meddle() {
    const uint64_t i = 1 + random_.Below(requests_.size());
    Request& r = requests_[i];
    const AttemptKey old = Id(i, r.attempt > 1 ? r.attempt - 1 : r.attempt);
    switch (random_.Below(9)) {
      case 0: pair_.hold_fetches = !pair_.hold_fetches; break;
      case 1: pair_.ReleaseFetches(); break;
      case 2: pair_.void_next_step = true; break;
      case 3:  // a client leaves; router cancels in either order
        if (r.over || !random_.Chance(0.3)) break;
        r.over = r.cancelled = true;
        r.text.insert(r.text.end(), pair_.answer(Id(i, r.attempt)).ids.begin(),
                      pair_.answer(Id(i, r.attempt)).ids.end());
        if (random_.Chance(0.5)) pair_.Forget(Id(i, r.attempt));
        pair_.Cancel(Id(i, r.attempt), r.decode);
        pair_.Forget(Id(i, r.attempt));
        break;
      case 4:  // an attempt for no reason
        if (r.over || r.attempt > 4) break;
        r.text.insert(r.text.end(), pair_.answer(Id(i, r.attempt)).ids.begin(),
                      pair_.answer(Id(i, r.attempt)).ids.end());
        if (r.text.size() == kNew) {
          r.over = true;
          break;
        }
        if (random_.Chance(0.5)) pair_.Cancel(Id(i, r.attempt), r.decode);
        Attempt(i);
        break;
      case 5:
        if (r.attempt > 1) pair_.Cancel(old, r.decode);
        break;
      case 6:
        if (r.attempt > 1) pair_.Prefill(old, r.prompt, r.prompt.size(), r.decode);
        break;
      case 7: {  // a read fails
        pair_.fetch_result = random_.Chance(0.3) ? Reason::kCorrupt : Reason::kOk;
        break;
      }
      case 8:
        // Engines of one arena are one process and die together.
        if (!same_arena_ && !decode2_only_ && random_.Chance(0.05)) {
          decode2_only_ = true;
          pair_.Kill(kDecode);
        }
        break;
    }
    if (random_.Chance(0.5)) pair_.fetch_result = Reason::kOk;
    pair_.Pass(Millis(random_.Between(0, 10)));
  }

  Random random_;
  Pair pair_;
  const bool same_arena_;
  std::map<uint64_t, Request> requests_;
  bool decode2_only_ = false;
};

TEST(PairSwarm, RandomLivesKeepTextAndAccounts) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    for (bool same_arena : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << (same_arena ? " shared" : " apart"));
      Life(seed, same_arena).Run();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace weir::engine
