// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/key/block_key.h"
#include "kvstore/key/geometry.h"
#include "kvstore/key/namespace.h"

namespace weir::kv {
namespace {

const Domain kDomain{.account = "account", .user = "user", .salt = ""};
const KeySpace kSpace{.model = "model", .layout = "layout", .tokenizer = "tokenizer", .adapter = ""};

std::vector<TokenId> Ids(int count) {
  std::vector<TokenId> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

// Computed with Python's hashlib and hmac from the formulas in the headers. A change of these is a
// change of every key that was ever written.
TEST(BlockKey, EqualsThePublishedVectors) {
  const BlockKey root = DomainRoot("secret", kDomain, kSpace);
  EXPECT_EQ(HexOf(root), "df37b23eac0078b232b49824787413e27efc2c40790cf1e48b5e70a8804a05d1");
  KeyChain chain(root, 4);
  chain.Append(Ids(10));
  ASSERT_EQ(chain.keys().size(), 2u);
  EXPECT_EQ(HexOf(chain.keys()[0]),
            "5dedca682834592e44354db4efb19001f203aa78e82c3fd2adbc90784095f488");
  EXPECT_EQ(HexOf(chain.keys()[1]),
            "8cdbfa093eeee3274b9bc8145d451919f2b0097ea77fbe782851d38929b01696");
  EXPECT_EQ(HexOf(chain.StateKey()),
            "997146dbcaa69b11eb77f986714ece27235746fa81bfa824a595f49ed89c16b5");
  EXPECT_EQ(chain.keys()[0].index().hi, 0x5dedca682834592eu);
  EXPECT_EQ(chain.keys()[0].index().lo, 0x44354db4efb19001u);
  EXPECT_EQ(chain.keys()[0].fingerprint(), 0xf203);

  Sha256Digest digest;
  digest.fill(0x11);
  KeyChain with_image(root, 4);
  const Media image{.first = 5, .tokens = 2, .digest = digest};
  with_image.Append(Ids(10), std::span(&image, 1));
  EXPECT_EQ(with_image.keys()[0], chain.keys()[0]);
  EXPECT_EQ(HexOf(with_image.keys()[1]),
            "876e9eddb6bbe87e694aade510eb5be20a720e239451e7db19fc1975c484b5de");
}

TEST(BlockKey, DoesNotDependOnHowTokensArrive) {
  const std::vector<TokenId> ids = Ids(37);
  KeyChain whole(BlockKey(), 4);
  whole.Append(ids);
  for (size_t piece = 1; piece < ids.size(); ++piece) {
    KeyChain chain(BlockKey(), 4);
    for (size_t at = 0; at < ids.size(); at += piece) {
      chain.Append(std::span(ids).subspan(at, std::min(piece, ids.size() - at)));
    }
    EXPECT_TRUE(std::equal(chain.keys().begin(), chain.keys().end(), whole.keys().begin(),
                           whole.keys().end()));
    EXPECT_EQ(chain.StateKey(), whole.StateKey());
    EXPECT_EQ(chain.tokens(), 37u);
  }
}

TEST(BlockKey, CommitsToEverythingBeforeIt) {
  const std::vector<TokenId> ids = Ids(16);
  std::set<BlockKey> seen;
  for (size_t changed = 0; changed <= ids.size(); ++changed) {
    std::vector<TokenId> other = ids;
    if (changed < ids.size()) other[changed] += 1000;
    KeyChain chain(BlockKey(), 4);
    chain.Append(other);
    EXPECT_TRUE(seen.insert(chain.keys()[3]).second);
  }
  // Neither a state behind a block nor another block size reads like a block.
  KeyChain chain(BlockKey(), 8);
  chain.Append(ids);
  EXPECT_TRUE(seen.insert(chain.keys()[1]).second);
  EXPECT_TRUE(seen.insert(chain.StateKey()).second);
}

TEST(DomainRoot, NoTwoListsOfFieldsReadAlike) {
  std::set<BlockKey> roots;
  for (const Domain& domain : std::vector<Domain>{{"ab", "c", ""}, {"a", "bc", ""}, {"abc", "", ""},
                                                  {"", "abc", ""}, {"", "ab", "c"},
                                                  {std::string("ab\0c", 4), "", ""}}) {
    EXPECT_TRUE(roots.insert(DomainRoot("", domain, kSpace)).second);
  }
  KeySpace adapter = kSpace;
  adapter.tokenizer = "token";
  adapter.adapter = "izer";
  EXPECT_TRUE(roots.insert(DomainRoot("", kDomain, kSpace)).second);
  EXPECT_TRUE(roots.insert(DomainRoot("", kDomain, adapter)).second);
  EXPECT_TRUE(roots.insert(DomainRoot("s", kDomain, kSpace)).second);
}

TEST(Geometry, KnowsRecordsAndReplays) {
  const Geometry v41{.block_tokens = 128, .block_bytes = 113920, .window = 128, .window_layers = 20};
  EXPECT_TRUE(v41.Validate().ok());
  EXPECT_EQ(v41.RecordBlocks(), 32u);
  EXPECT_EQ(v41.ExactReplay(), 2541u);  // serving-spec 3.8
  const Geometry v32{.block_tokens = 64, .block_bytes = 3076352};
  EXPECT_TRUE(v32.plain());
  EXPECT_EQ(v32.RecordBlocks(), 1u);
  EXPECT_EQ(v32.ExactReplay(), 0u);
  EXPECT_EQ((Geometry{.block_bytes = 64u << 20}).RecordBlocks(), 1u);
  EXPECT_EQ(ParamOf((Geometry{.block_bytes = 1, .window = 8}).Validate()), "window_layers");
  EXPECT_EQ(ParamOf((Geometry{.block_tokens = 0, .block_bytes = 1}).Validate()), "block_tokens");
  EXPECT_EQ(Geometry::EvenBelow(7), 6u);
}

}  // namespace
}  // namespace weir::kv
