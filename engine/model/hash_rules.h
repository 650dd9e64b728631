// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the hash model: what one row reads, what it writes, and which token follows.
// Pure functions over an Access, which says where rows lie, so that the paged model and its slow
// twin share every formula and differ only in storage. Nothing here allocates per row or blocks.
//
// One position p with token x, W = window, T = tail_start, V = visible_from, F = write_floor:
//   base = x, p and the two tokens before (carry "history")
//   u    = base and window layer 0 of [max(V, p-W+1), p)     layer 0 holds base, layer 1 holds u
//   e    = u and window layer 1 of the same rows
//   odd p: encoder entry (p-1)/2 = e and the carry "remainder" of p-1; written when p >= F
//   e    = e and encoder entries up to p
//   decoder entry p = e; written when p >= F
//   p >= T: d = e, decoder window of [max(T, V, p-W+1), p) and decoder entries up to p
// The encoder windows reach back 2(W-1) tokens, so a replay of that length is exact; the decoder
// window feeds on itself, so that another tail start changes every later token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/stdx/ids.h"
#include "base/stdx/random.h"
#include "engine/cache/cache_layout.h"
#include "engine/sched/step_plan.h"

namespace weir::engine {

struct HashConfig {
  uint32_t vocab = 1024;
  uint32_t block_tokens = 64;
  uint32_t window = 16;
  uint32_t decoder_tail_rows = 16;  // K
  uint32_t draft_max = 3;           // gamma
  Position positions_max = 1 << 20;
  uint32_t step_delay_us = 0;
  double draft_hit_rate = 0.7;
  double stop_probability = 0;  // per position
  TokenId emit_first = 4;       // lower ids (control tokens) are never emitted by chance
  uint64_t salt = 0;            // another salt is another model
  std::vector<TokenId> stop_tokens = {1};
};

// Rows of every store. All 16 bytes enter the hash of whoever reads the row.
struct HashRow {
  uint64_t value = 0;
  uint32_t position = 0;
  uint32_t mark = 0;  // of store and layer
};
static_assert(sizeof(HashRow) == 16);

enum HashStore : int {
  kHashEncoderBlock = 0,
  kHashDecoderBlock = 1,
  kHashEncoderWindow = 2,  // two layers
  kHashDecoderWindow = 3,
  kHashRemainder = 4,
  kHashHistory = 5,
};
inline constexpr uint32_t kHashHistoryTokens = 2;

CacheLayout HashLayout(const HashConfig& config);

// What a row knows of its sequence besides the stores.
struct HashBounds {
  Position tail_start = 0;
  Position visible_from = 0;
  Position write_floor = 0;
};

constexpr uint64_t FoldRow(uint64_t state, const HashRow& row) {
  return MixInto(MixInto(state, row.value), (uint64_t{row.position} << 32) | row.mark);
}

constexpr HashRow MakeHashRow(HashStore store, int layer, Position position, uint64_t value) {
  return {value, position, static_cast<uint32_t>(0x57000000 + store * 16 + layer)};
}

// Which of `count` entries row p attends to: all of them in a short context, else the latest and a
// spread that depends on p alone, so that a step costs the same in any context.
inline constexpr uint32_t kHashEntriesAll = 64;
inline constexpr uint32_t kHashEntriesLast = 8;
inline constexpr uint32_t kHashEntriesSpread = 24;

template <class Read>
uint64_t FoldEntries(uint64_t state, Position p, uint32_t count, const Read& read) {
  if (count <= kHashEntriesAll) {
    for (uint32_t i = 0; i < count; ++i) state = FoldRow(state, read(i));
    return state;
  }
  for (uint32_t i = 0; i < kHashEntriesSpread; ++i) {
    state = FoldRow(state, read(static_cast<uint32_t>(RandomBits(count, p, i) % count)));
  }
  for (uint32_t i = count - kHashEntriesLast; i < count; ++i) state = FoldRow(state, read(i));
  return state;
}

// Computes row p, writing its state through `access`, and returns the hash the next token is chosen
// from. Access: HashRow Ring(store, layer, position), SetRing(...), HashRow Block(store, position),
// SetBlock(...).
template <class Access>
uint64_t ComputeHashRow(const HashConfig& config, Access& access, Position p, TokenId token,
                        const HashBounds& bounds) {
  const uint64_t word = static_cast<uint64_t>(static_cast<uint32_t>(token));
  uint64_t base = MixInto(MixInto(config.salt, word), p);
  for (uint32_t back = 1; back <= kHashHistoryTokens; ++back) {
    base = p >= back ? FoldRow(base, access.Ring(kHashHistory, 0, p - back)) : MixInto(base, back);
  }
  access.SetRing(kHashHistory, 0, p, MakeHashRow(kHashHistory, 0, p, word));

  const Position reach = p >= config.window ? p - config.window + 1 : 0;
  const Position from = std::max(bounds.visible_from, reach);
  access.SetRing(kHashEncoderWindow, 0, p, MakeHashRow(kHashEncoderWindow, 0, p, base));
  uint64_t hidden = base;
  for (Position j = from; j < p; ++j) {
    hidden = FoldRow(hidden, access.Ring(kHashEncoderWindow, 0, j));
  }
  access.SetRing(kHashEncoderWindow, 1, p, MakeHashRow(kHashEncoderWindow, 1, p, hidden));
  for (Position j = from; j < p; ++j) {
    hidden = FoldRow(hidden, access.Ring(kHashEncoderWindow, 1, j));
  }

  if (p % 2 == 0) {
    access.SetRing(kHashRemainder, 0, p, MakeHashRow(kHashRemainder, 0, p, hidden));
  } else if (p >= bounds.write_floor) {
    const uint64_t entry = FoldRow(hidden, access.Ring(kHashRemainder, 0, p - 1));
    access.SetBlock(kHashEncoderBlock, p, MakeHashRow(kHashEncoderBlock, 0, p, entry));
  }
  hidden = FoldEntries(hidden, p, (p + 1) / 2, [&access](uint32_t i) {
    return access.Block(kHashEncoderBlock, 2 * i + 1);
  });
  if (p >= bounds.write_floor) {
    access.SetBlock(kHashDecoderBlock, p, MakeHashRow(kHashDecoderBlock, 0, p, hidden));
  }
  if (p < bounds.tail_start) return hidden;

  for (Position j = std::max(from, bounds.tail_start); j < p; ++j) {
    hidden = FoldRow(hidden, access.Ring(kHashDecoderWindow, 0, j));
  }
  hidden = FoldEntries(hidden, p, p + 1,
                       [&access](uint32_t i) { return access.Block(kHashDecoderBlock, i); });
  access.SetRing(kHashDecoderWindow, 0, p, MakeHashRow(kHashDecoderWindow, 0, p, hidden));
  return hidden;
}

// The token that follows a row whose hash is `hidden`, at `position` of the sequence. `answer` holds
// the answer's tokens so far, all attempts. *score is filled when the sampling asks for it and score
// is not null.
TokenId ChooseHashToken(const HashConfig& config, uint64_t hidden, Position position,
                        const SamplingParams& sampling, std::span<const TokenId> answer,
                        TokenScore* score);

// What the drafter proposes where `truth` is what the model would say.
TokenId DraftHashToken(const HashConfig& config, uint64_t hidden, TokenId truth);

}  // namespace weir::engine
