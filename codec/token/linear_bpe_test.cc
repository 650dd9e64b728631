// SPDX-License-Identifier: Apache-2.0
//
// LinearBpe against BPE as defined, on vocabularies grown from random text.
#include "codec/token/linear_bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/stdx/random.h"
#include "codec/token/token_trie.h"

namespace weir::codec {
namespace {

std::string RandomText(Random* random, size_t size, uint64_t letters) {
  std::string text;
  while (text.size() < size) text.push_back(static_cast<char>('a' + random->Below(letters)));
  return text;
}

struct Grown {
  std::array<TokenId, 256> byte_ids{};
  std::vector<Merge> merges;
  std::vector<VocabEntry> entries;

  Vocab MakeVocab() const { return *Vocab::Create(entries, Sha256Digest{}); }
};

// As BPE is trained: the most frequent pair of neighbours becomes a token, again and again.
Grown Grow(Random* random, int merges, uint64_t letters) {
  Grown grown;
  for (int byte = 0; byte < 256; ++byte) {
    const TokenId id = 255 - byte;  // ids need not follow the bytes
    grown.byte_ids[static_cast<size_t>(byte)] = id;
    grown.entries.push_back({id, std::string(1, static_cast<char>(byte)), false});
  }
  std::map<TokenId, std::string> bytes;
  for (const VocabEntry& entry : grown.entries) bytes[entry.id] = entry.bytes;
  std::vector<TokenId> ids;
  for (const char c : RandomText(random, 3000, letters)) {
    ids.push_back(grown.byte_ids[static_cast<uint8_t>(c)]);
  }
  for (int i = 0; i < merges; ++i) {
    std::map<std::pair<TokenId, TokenId>, int> counts;
    for (size_t k = 0; k + 1 < ids.size(); ++k) ++counts[{ids[k], ids[k + 1]}];
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      if (it->second > best->second) best = it;
    }
    const auto [left, right] = best->first;
    std::string product = bytes[left] + bytes[right];
    bool known = false;
    for (const auto& [id, text] : bytes) known = known || text == product;
    if (known) break;
    const TokenId id = 256 + i * 3;
    grown.merges.push_back({left, right, id});
    grown.entries.push_back({id, product, false});
    bytes[id] = std::move(product);
    std::vector<TokenId> merged;
    for (size_t k = 0; k < ids.size(); ++k) {
      const bool pair = k + 1 < ids.size() && ids[k] == left && ids[k + 1] == right;
      merged.push_back(pair ? id : ids[k]);
      k += pair;
    }
    ids = std::move(merged);
  }
  return grown;
}

TEST(LinearBpe, EqualsTheDefinition) {
  Random random(17);
  int linear = 0;
  for (int round = 0; round < 30; ++round) {
    const uint64_t letters = 1 + random.Below(4);
    const Grown grown = Grow(&random, 80, letters);
    const Vocab vocab = grown.MakeVocab();
    const MergeTable reference = MergeTable::Build(grown.byte_ids, grown.merges);
    const auto bpe = LinearBpe::Create(grown.byte_ids, grown.merges, vocab, reference);
    if (!bpe) continue;
    ++linear;
    for (int i = 0; i < 200; ++i) {
      const std::string text = RandomText(&random, random.Below(i % 10 == 0 ? 300 : 40), letters);
      std::vector<TokenId> expected;
      std::vector<TokenId> got;
      reference.Encode(text, &expected);
      bpe->Encode(text, &got);
      ASSERT_EQ(got, expected) << text;
    }
  }
  EXPECT_GT(linear, 15);
}

TEST(LinearBpe, RefusesVocabulariesOfAnotherKind) {
  Random random(3);
  const Grown good = Grow(&random, 10, 3);
  const auto creates = [](const Grown& grown) {
    const MergeTable reference = MergeTable::Build(grown.byte_ids, grown.merges);
    return LinearBpe::Create(grown.byte_ids, grown.merges, grown.MakeVocab(), reference)
        .has_value();
  };
  ASSERT_TRUE(creates(good));
  Grown twice = good;
  twice.merges.push_back(twice.merges.back());
  EXPECT_FALSE(creates(twice));
  Grown early = good;  // of a token that no earlier merge makes
  early.merges.insert(early.merges.begin(), {good.merges[0].merged, good.byte_ids['a'], 9000});
  early.entries.push_back({9000, "xxa", false});
  EXPECT_FALSE(creates(early));
  Grown other_bytes = good;
  other_bytes.entries.back().bytes += "!";
  EXPECT_FALSE(creates(other_bytes));
  // "abc" is never made, since "bc" comes first.
  Grown hidden;
  hidden.byte_ids = good.byte_ids;
  hidden.entries.assign(good.entries.begin(), good.entries.begin() + 256);
  const auto id = [&](char c) { return hidden.byte_ids[static_cast<uint8_t>(c)]; };
  hidden.merges = {{id('b'), id('c'), 300}, {id('a'), id('b'), 301}, {301, id('c'), 302}};
  for (const auto& [token, text] : {std::pair(300, "bc"), {301, "ab"}, {302, "abc"}}) {
    hidden.entries.push_back({token, text, false});
  }
  EXPECT_FALSE(creates(hidden));
}

TEST(TokenTrie, FindsTheLongest) {
  Random random(8);
  std::map<std::string, Symbol> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace(std::string(1, static_cast<char>(byte)), tokens.size());
  }
  for (int i = 0; i < 3000; ++i) {
    std::string text = RandomText(&random, 2 + random.Below(9), 3);
    if (i % 5 == 0) text.back() = static_cast<char>(random.Below(256));
    tokens.emplace(text, tokens.size());
  }
  const TokenTrie trie =
      TokenTrie::Build(std::vector<std::pair<std::string_view, Symbol>>(tokens.begin(), tokens.end()));
  for (int i = 0; i < 3000; ++i) {
    std::string text = RandomText(&random, 1 + random.Below(12), 3);
    if (i % 4 == 0) text[random.Below(text.size())] = static_cast<char>(random.Below(256));
    Symbol expected = kNoSymbol;
    for (size_t size = text.size(); size > 0 && expected == kNoSymbol; --size) {
      const auto found = tokens.find(text.substr(0, size));
      if (found != tokens.end()) expected = found->second;
    }
    ASSERT_EQ(trie.Longest(text.data(), text.data() + text.size()).symbol, expected) << text;
  }
}

}  // namespace
}  // namespace weir::codec
