// SPDX-License-Identifier: Apache-2.0
//
// Stories about prefixes that several requests have in common. The model's answer depends on every
// part of a sequence's state, so an answer equal to the cold one proves what was reused.
#include "tests/scenario/scenario.h"

namespace weir::sim {
namespace {

ClusterConfig Sharing() {
  ClusterConfig config = Scenario::Small();
  config.hit_tokens_min = 32;
  config.prefill = 1;
  config.decode = 1;
  return config;
}

std::vector<TokenId> Words(uint32_t count, uint64_t seed) {
  std::vector<TokenId> words;
  for (uint64_t i = 0; i < count; ++i) {
    words.push_back(static_cast<TokenId>(4 + RandomBits(seed, 8, i) % 1000));
  }
  return words;
}

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

ClientId Ask(Scenario* s, std::vector<TokenId> prompt, uint32_t new_tokens_max = 12) {
  RequestSpec spec;
  spec.prompt_tokens = static_cast<uint32_t>(prompt.size());
  spec.prompt = std::move(prompt);
  spec.new_tokens_max = new_tokens_max;
  spec.stop_tokens.clear();
  return s->Ask(spec);
}

uint32_t Cached(Scenario* s, ClientId id) { return s->At(id).close->cached_tokens; }

TEST(Reuse, ASessionOfTurnsIsAsIfEachWereTheFirst) {
  for (const bool paired : {false, true}) {
    ClusterConfig config = Sharing();
    config.paired = paired;
    Scenario s(config);
    const Reached states("prefill: goes on at a window state");
    std::vector<TokenId> session = Words(70, 1);
    uint32_t before = 0;
    for (int turn = 0; turn < 8; ++turn) {
      const ClientId id = Ask(&s, session);
      s.ExpectWhole(id);
      EXPECT_EQ(Cached(&s, id), before / 16 * 16) << turn;
      session = Joined(session, s.Text(id));
      before = static_cast<uint32_t>(session.size()) - 1;  // the last token was never computed
      session = Joined(session, Words(9 + turn, 10 + turn));
      s.RunFor(Millis(20));  // the router lets go of it
    }
    EXPECT_EQ(states.count(), 7u);
    s.Ends();
  }
}

TEST(Reuse, ForksAtEveryOffsetAreBilledByBlocksAndReplayedForNothing) {
  Scenario s(Sharing());
  const Reached replays("prefill: exact replay");
  const std::vector<TokenId> first = Words(100, 1);
  s.ExpectWhole(Ask(&s, first));
  for (uint32_t common = 0; common <= 100; common += 7) {
    std::vector<TokenId> fork(first.begin(), first.begin() + common);
    fork = Joined(fork, Words(9, 100 + common));
    const ClientId id = Ask(&s, fork);
    s.ExpectWhole(id);
    const uint32_t whole = std::min<uint32_t>(common, static_cast<uint32_t>(fork.size()) - 1) / 16 * 16;
    EXPECT_EQ(Cached(&s, id), whole < 32 ? 0 : whole) << common;
  }
  EXPECT_GT(replays.count(), 5u);
  s.Ends();
}

TEST(Reuse, SoManyBeginAlikeThatBlocksMustGo) {
  ClusterConfig config = Sharing();
  config.blocks = 24;
  Scenario s(config);
  const Reached evicted("prefill: shared blocks evicted for a new request");
  const std::vector<TokenId> common = Words(80, 1);
  std::vector<ClientId> all;
  for (uint64_t i = 0; i < 40; ++i) {
    const std::vector<TokenId> start(common.begin(), common.begin() + static_cast<long>(20 + i % 60));
    all.push_back(Ask(&s, Joined(start, Words(30, 500 + i))));
  }
  for (const ClientId id : all) s.ExpectWhole(id);
  EXPECT_GT(evicted.count(), 0u);
  s.Ends();
}

TEST(Reuse, TheRouterSendsAConversationWhereItsPrefixIs) {
  ClusterConfig config = Scenario::Small();
  config.prefill = 4;
  config.blocks = 128;
  config.hit_tokens_min = 256;
  Scenario s(config);
  std::vector<std::vector<TokenId>> sessions;
  for (uint64_t i = 0; i < 6; ++i) sessions.push_back(Words(300, 40 + i));
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<ClientId> all;
    for (auto& session : sessions) all.push_back(Ask(&s, session));
    for (size_t i = 0; i < all.size(); ++i) {
      s.ExpectWhole(all[i]);
      if (turn > 0) EXPECT_GE(Cached(&s, all[i]), 288u) << turn << " " << i;
      sessions[i] = Joined(Joined(sessions[i], s.Text(all[i])), Words(20, 900 + i));
    }
    s.RunFor(Millis(100));  // engines tell what they hold
  }
  s.Ends();
}

}  // namespace
}  // namespace weir::sim
