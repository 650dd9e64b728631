// SPDX-License-Identifier: Apache-2.0
// Known failures of comparable servers in prefix caches and their isolation, as stories that must end
// well here. One test per case, named by its code; sizes are scaled to the simulator.
#include <set>

#include "engine/cache/prefix_cache.h"
#include "kvstore/key/namespace.h"
#include "tests/scenario/scenario.h"

namespace weir::sim {
namespace {

constexpr uint32_t kBlock = 16;

ClusterConfig OnePair() {
  ClusterConfig config = Scenario::Small();
  config.prefill = config.decode = 1;
  config.hit_tokens_min = 2 * kBlock;
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

// Asks and waits for the answer, which must be the cold one; the record of the request.
ClientId Ask(Scenario* s, std::vector<TokenId> prompt, std::string tenant = {}) {
  RequestSpec spec;
  spec.prompt_tokens = static_cast<uint32_t>(prompt.size());
  spec.prompt = std::move(prompt);
  spec.new_tokens_max = 12;
  spec.stop_tokens.clear();
  spec.tenant = std::move(tenant);
  const ClientId id = s->Ask(spec);
  s->ExpectWhole(id);
  s->RunFor(Millis(30));  // the router lets go of it, engines tell what they hold
  return id;
}

uint32_t Cached(Scenario* s, ClientId id) { return s->At(id).close->cached_tokens; }

TEST(PFX_D19, ImagesOfOneShortHashShareNothing) {
  const std::vector<TokenId> text(2 * kBlock, 9);
  std::set<kv::BlockKey> keys;
  for (int i = 0; i < 2000; ++i) {
    kv::Media image{.first = 3, .tokens = 5, .digest = {}};
    // Alike in the first 16 bits, and in all but one bit of the others.
    if (i > 0) image.digest[static_cast<size_t>(2 + i % 30)] = static_cast<uint8_t>(1 + i / 30);
    kv::KeyChain chain(kv::BlockKey(), kBlock);
    chain.Append(text, std::span(&image, 1));
    EXPECT_TRUE(keys.insert(chain.keys()[0]).second);
    EXPECT_TRUE(keys.insert(chain.keys()[1]).second) << "what follows depends on it too";
  }
}

TEST(PFX_D20, NamesAndSaltsThatReadAlikeTogetherAreApart) {
  const auto root = [](const kv::Domain& domain, const std::string& adapter) {
    return kv::DomainRoot("", domain, {.model = "m", .layout = "l", .tokenizer = "", .adapter = adapter});
  };
  std::set<kv::BlockKey> roots;
  for (const std::string& glue : {std::string(), std::string("|"), std::string("\0", 1)}) {
    EXPECT_TRUE(roots.insert(root({"", "", "ab" + glue}, "c")).second);
    EXPECT_TRUE(roots.insert(root({"", "", "a"}, "b" + glue + "c")).second);
    EXPECT_TRUE(roots.insert(root({"", "ab" + glue, "c"}, "d")).second);
    EXPECT_TRUE(roots.insert(root({"ab" + glue, "c", ""}, "d")).second);
  }
}

TEST(PFX_D21, AKeyIsComparedOverAllItsBits) {
  engine::KvMemory memory;
  memory.page_count[1] = 8;
  const engine::CacheLayout layout(kBlock, {{.name = "kv", .row_bytes = 4}});
  engine::KvPool pool(layout, engine::ShareOf(memory));
  engine::PrefixCache cache(&pool, 0);
  engine::BlockTable table;
  ASSERT_TRUE(pool.Grow(1, &table));
  kv::BlockKey key, twin;
  twin.bytes[31] = 1;  // of another prompt, and alike in what an index looks at
  ASSERT_EQ(key.index(), twin.index());
  ASSERT_TRUE(cache.Seal(key, engine::Grade::kExact, &table));
  engine::BlockTable other;
  cache.Attach(std::span(&twin, 1), engine::Grade::kExact, &other);
  EXPECT_TRUE(other.shared.empty());
  cache.Attach(std::span(&key, 1), engine::Grade::kExact, &other);
  EXPECT_EQ(other.shared.size(), 1u);
}

TEST(PFX_D22, APromptOfBlocksAndABitHitsAllItsBlocks) {
  Scenario s(OnePair());
  const uint32_t blocks = 5;
  const std::vector<TokenId> prompt = Words(blocks * kBlock + 7, 1);
  EXPECT_EQ(Cached(&s, Ask(&s, prompt)), 0u);
  EXPECT_EQ(Cached(&s, Ask(&s, prompt)), blocks * kBlock);
  EXPECT_EQ(Cached(&s, Ask(&s, Joined(prompt, Words(kBlock, 2)))), blocks * kBlock);
  std::vector<TokenId> changed = prompt;
  for (uint32_t i = blocks * kBlock; i < changed.size(); ++i) changed[i] ^= 1;
  EXPECT_EQ(Cached(&s, Ask(&s, changed)), blocks * kBlock);
  s.Ends();
}

TEST(PFX_D23, ColdAndWarmSayTheSame) {
  ClusterConfig config = OnePair();
  config.blocks = 400;
  Scenario s(config);
  for (uint64_t i = 0; i < 200; ++i) {
    const std::vector<TokenId> prompt = Words(20 + static_cast<uint32_t>(i % 90), i / 2);
    Ask(&s, prompt);  // compares with the cold answer
  }
  EXPECT_GT(s.Sum(Role::kPrefill, &engine::EngineState::tokens_hit), 2000u);
  s.Ends();
}

TEST(PFX_D24, AToolSessionAndItsRetryPayForWhatIsNewAlone) {
  ClusterConfig config = OnePair();
  config.blocks = 128;
  Scenario s(config);
  std::vector<TokenId> session = Words(50, 1);
  uint32_t before = 0;
  for (uint64_t turn = 0; turn < 10; ++turn) {
    const ClientId id = Ask(&s, session);
    EXPECT_GE(Cached(&s, id) + kBlock, before) << turn;
    before = static_cast<uint32_t>(session.size());
    if (turn < 9) session = Joined(Joined(session, s.Text(id)), Words(15, 20 + turn));
  }
  EXPECT_GE(Cached(&s, Ask(&s, session)) + kBlock, before);
  s.Ends();
}

TEST(PFX_D25, AGrowingSessionIsNotEvictedByItsOwnNextTurn) {
  ClusterConfig config = OnePair();
  config.blocks = 17;  // 1.2 times the session
  Scenario s(config);
  std::vector<TokenId> session = Words(40, 1);
  uint32_t before = 0;
  while (session.size() < 200) {
    const ClientId id = Ask(&s, session);
    EXPECT_GE(Cached(&s, id), before / kBlock * kBlock);
    before = static_cast<uint32_t>(session.size());
    session = Joined(Joined(session, s.Text(id)), Words(9, before));
  }
  s.Ends();
}

TEST(PFX_D26, BlocksThatAreEqualButNotAtTheHeadAreNoMatch) {
  ClusterConfig config = OnePair();
  config.prefill = 2;
  config.decode = 2;
  config.blocks = 128;
  Scenario s(config);
  const std::vector<TokenId> a = Words(320, 1), b = Words(320, 2), d = Words(320, 3);
  const ClientId first = Ask(&s, Joined(a, b));
  EXPECT_EQ(Cached(&s, first), 0u);
  EXPECT_EQ(Cached(&s, Ask(&s, Joined(d, b))), 0u);
  // At the head it is one, and the engine that has it is chosen every time.
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(Cached(&s, Ask(&s, Joined(Joined(a, b), Words(20, 50 + i)))), 640u);
  }
  s.Ends();
}

TEST(PFX_D27, NoTimeAndNoBillTellWhatAnotherTenantAsked) {
  Scenario s(OnePair());
  const std::vector<TokenId> secret = Words(90, 1);
  Ask(&s, secret, "one");
  const auto rows = [&] { return s.Sum(Role::kPrefill, &engine::EngineState::rows_computed); };
  const auto probe = [&](const std::vector<TokenId>& prompt) {
    const uint64_t before = rows();
    EXPECT_EQ(Cached(&s, Ask(&s, prompt, "two")), 0u);
    return rows() - before;
  };
  const uint64_t guess = probe(secret);
  EXPECT_EQ(guess, probe(Words(90, 2))) << "as much work as for any other text";
  // Its own text it may share with itself.
  EXPECT_EQ(Cached(&s, Ask(&s, secret, "two")), 80u);
  EXPECT_EQ(Cached(&s, Ask(&s, secret, "one")), 80u);
  s.Ends();
}

}  // namespace
}  // namespace weir::sim
