// SPDX-License-Identifier: Apache-2.0
#include "router/match/prefix_index.h"

#include <vector>

#include "gtest/gtest.h"

namespace weir::router {
namespace {

constexpr InstanceId kEngine{5};

std::vector<kv::BlockKey> Keys(TokenId word, uint32_t blocks) {
  kv::KeyChain chain(kv::BlockKey(), 4);
  chain.Append(std::vector<TokenId>(blocks * 4, word));
  return {chain.keys().begin(), chain.keys().end()};
}

pb::CacheEvents Events(uint64_t number, const std::vector<kv::BlockKey>& added, bool snapshot = false,
                       const std::vector<kv::BlockKey>& removed = {}) {
  pb::CacheEvents events;
  events.set_number(number);
  events.set_snapshot(snapshot);
  for (const auto& key : added) events.add_added(key.index().hi);
  for (const auto& key : removed) events.add_removed(key.index().hi);
  return events;
}

TEST(PrefixIndex, CountsBlocksFromTheHeadAlone) {
  PrefixIndex index;
  const auto keys = Keys(7, 9);
  EXPECT_TRUE(index.Apply(kEngine, Events(0, {}, true)));
  for (size_t held = 0; held <= keys.size(); ++held) {
    EXPECT_EQ(index.Match(kEngine, keys), held);
    EXPECT_EQ(index.Match(kEngine, std::span(keys).first(3)), std::min<size_t>(held, 3));
    EXPECT_EQ(index.Match(InstanceId(6), keys), 0u);
    if (held < keys.size()) EXPECT_TRUE(index.Apply(kEngine, Events(held + 1, {keys[held]})));
  }
  EXPECT_EQ(index.Match(kEngine, Keys(8, 9)), 0u);
  EXPECT_TRUE(index.Apply(kEngine, Events(10, {}, false, {keys[7], keys[8]})));
  EXPECT_EQ(index.Match(kEngine, keys), 7u);
  EXPECT_EQ(index.keys(), 7u);
  index.Lose(kEngine);
  EXPECT_EQ(index.Match(kEngine, keys), 0u);
}

TEST(PrefixIndex, AGapDropsEverythingUntilASnapshot) {
  PrefixIndex index;
  const auto keys = Keys(7, 3);
  EXPECT_TRUE(index.Apply(kEngine, Events(4, {keys[0]}, true)));
  EXPECT_FALSE(index.Apply(kEngine, Events(6, {keys[1]})));
  EXPECT_EQ(index.Match(kEngine, keys), 0u);
  EXPECT_TRUE(index.Apply(kEngine, Events(7, {keys[1]}))) << "asked for already";
  EXPECT_EQ(index.keys(), 0u);
  EXPECT_TRUE(index.Apply(kEngine, Events(7, {keys[0], keys[1]}, true)));
  EXPECT_TRUE(index.Apply(kEngine, Events(8, {keys[2]})));
  EXPECT_EQ(index.Match(kEngine, keys), 3u);
}

}  // namespace
}  // namespace weir::router
