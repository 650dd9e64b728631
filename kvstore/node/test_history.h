// SPDX-License-Identifier: Apache-2.0
//
// A history of one client for tests: prompts of four domains that fork from each other are looked
// up, loaded, put and now and then erased, one operation after the other. Every byte follows from
// its block's key, so any answer can be checked; misses and failures are counted and legal. One
// thread; it waits for outcomes by the client's wake and at most 30 s.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>

#include "base/runtime/clock.h"
#include "base/stdx/check.h"
#include "kvstore/blob/test_record.h"
#include "kvstore/client/kv_client.h"
#include "kvstore/key/namespace.h"
#include "kvstore/transfer/arena.h"

namespace weir::kv {

class WakeFlag {
 public:
  std::function<void()> Hook() {
    return [this] {
      {
        std::lock_guard lock(mu_);
        woken_ = true;
      }
      ready_.notify_all();
    };
  }
  void Wait(Duration limit) {
    std::unique_lock lock(mu_);
    ready_.wait_for(lock, limit, [this] { return woken_; });
    woken_ = false;
  }

 private:
  std::mutex mu_;
  std::condition_variable ready_;
  bool woken_ = false;
};

class ClientHistory {
 public:
  static constexpr uint64_t kArenaBytes = 64 * 1024;

  ClientHistory(KvClient* client, WakeFlag* wake, Arena* arena, uint64_t seed)
      : client_(*client), wake_(*wake), arena_(*arena), random_(seed) {}

  static RecordShape Shape(uint32_t blocks) {
    RecordShape shape;
    shape.blocks = blocks;
    shape.sections = 2;
    shape.section[0] = {1, 300};
    shape.section[1] = {2, 700};
    return shape;
  }

  KvOutcome Await(KvOpId id) {
    const Instant end = Now() + Millis(30'000);
    while (Now() < end) {
      client_.Poll(Now(), &outcomes_);
      for (KvOutcome& outcome : outcomes_) {
        if (outcome.id != id) continue;
        KvOutcome found = std::move(outcome);
        outcomes_.clear();
        return found;
      }
      outcomes_.clear();
      const Instant next = std::min(client_.NextDeadline(), end);
      if (const Instant now = Now(); next > now) wake_.Wait(next - now);
    }
    WEIR_CHECK(false);  // an operation did not end
    return {};
  }

  // False when the store does not answer within `limit`.
  bool AwaitUp(Duration limit = Millis(30'000)) {
    const Instant end = Now() + limit;
    while (!client_.up() && Now() < end) {
      client_.Poll(Now(), &outcomes_);
      if (!client_.up()) wake_.Wait(Millis(20));
    }
    return client_.up();
  }

  void Run(uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i) One();
  }

  void One() {
    MakePrompt();
    if (random_.Below(1000) == 0) {
      const auto erase = client_.EraseDomain(Now(), domain_, Now() + Millis(10'000));
      if (erase.ok() && Await(*erase).status.ok()) ++erased;
      return;
    }
    const auto lookup = client_.Lookup(Now(), root_, keys_, false, Shape(1));
    if (!lookup.ok()) {
      ++failed;
      return;
    }
    const KvOutcome found = Await(*lookup);
    if (found.status.ok()) {
      if (found.blocks > 0) LoadAll(*lookup, found.blocks);
      client_.Release(*lookup);
      PutRest(found.blocks);
    } else {
      ++failed;
    }
  }

  uint64_t loaded_blocks = 0, puts = 0, failed = 0, erased = 0, wrong = 0;

 private:
  static uint64_t SeedOf(const BlockKey& key) { return key.index().hi; }

  void MakePrompt() {
    const uint64_t domain = random_.Below(4);
    domain_[0] = static_cast<uint8_t>(domain);
    root_ = DomainRoot("secret", {.account = std::to_string(domain)}, {.model = "m"});
    KeyChain chain(root_, 2);
    const uint64_t blocks = 1 + random_.Below(24);
    uint64_t branch = 0;
    for (uint64_t i = 0; i < blocks; ++i) {
      if (random_.Chance(0.1)) branch = 1 + random_.Below(3);
      const TokenId ids[] = {static_cast<TokenId>(i), static_cast<TokenId>(branch)};
      chain.Append(ids);
    }
    keys_.assign(chain.keys().begin(), chain.keys().end());
  }

  std::vector<BlockPart> Parts(uint32_t first, uint32_t count) const {
    std::vector<BlockPart> parts;
    uint64_t at = 0;
    for (uint32_t j = 0; j < count; ++j) {
      for (uint32_t i = 0; i < 2; ++i) {
        parts.push_back({first + j, i, 1, at});
        at += Shape(1).section[i].block_bytes;
      }
    }
    return parts;
  }

  std::span<std::byte> Memory(const BlockPart& part) {
    return {arena_.data() + part.offset, Shape(1).section[part.section].block_bytes};
  }

  void LoadAll(KvOpId lookup, uint32_t blocks) {
    const auto first = static_cast<uint32_t>(random_.Below(blocks));
    const std::vector<BlockPart> parts = Parts(first, blocks - first);
    std::memset(arena_.data(), 0, arena_.bytes());
    const auto load = client_.Load(Now(), lookup, parts, Now() + Millis(5000));
    if (!load.ok() || !Await(*load).status.ok()) {
      ++failed;
      return;
    }
    std::vector<std::byte> expected;
    for (const BlockPart& part : parts) {
      expected.resize(Memory(part).size());
      FillBlock(SeedOf(keys_[part.block]), part.section, 0, expected);
      if (std::memcmp(expected.data(), Memory(part).data(), expected.size()) != 0) ++wrong;
    }
    loaded_blocks += blocks - first;
  }

  void PutRest(uint32_t first) {
    while (first < keys_.size()) {
      const auto blocks =
          static_cast<uint32_t>(std::min<uint64_t>(1 + random_.Below(6), keys_.size() - first));
      KvPut put{.root = root_, .keys = keys_, .first = first, .domain = domain_};
      put.shape = Shape(blocks);
      put.parts = Parts(first, blocks);
      for (const BlockPart& part : put.parts)
        FillBlock(SeedOf(keys_[part.block]), part.section, 0, Memory(part));
      const auto id = client_.Put(Now(), put, Now() + Millis(5000));
      if (!id.ok() || !Await(*id).status.ok()) {
        ++failed;
        return;
      }
      ++puts;
      first += blocks;
    }
  }

  KvClient& client_;
  WakeFlag& wake_;
  Arena& arena_;
  Random random_;
  DomainId domain_{};
  BlockKey root_;
  std::vector<BlockKey> keys_;
  std::vector<KvOutcome> outcomes_;
};

}  // namespace weir::kv
