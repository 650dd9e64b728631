// SPDX-License-Identifier: Apache-2.0
//
// CacheLayout: which state a model keeps per sequence and how its bytes lie. Built once from a
// checkpoint, constant afterwards, readable from any thread. Paging, transfer, sealing and hashing
// work on (store, page) only; nothing indexes KV by layer outside the model and its kernels.
// Errors: Validate names the store at fault.
//
// Three kinds of store:
//   block   one row per `ratio` tokens, paged: page p of a part holds the rows of one block of
//           `block_tokens` tokens for every block store of that part. Immutable once complete.
//   window  a ring of `rows` recent rows per sequence, in the state page: row of position i at
//           i % rows. Sliding-window KV of W tokens needs W + 2(gamma + 1) rows, so that drafts that
//           are rejected never overwrite a row still needed.
//   carry   as window, for what a step leaves to the next (compressor remainder, token history).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/stdx/status.h"

namespace weir::engine {

enum class StoreKind : uint8_t { kBlock = 0, kWindow = 1, kCarry = 2 };

// Encoder: what layers up to the last KV source read. Decoder: what the layers after it read.
// A model without a causal encoder keeps everything in the decoder part and has no encoder pages.
enum class Part : uint8_t { kEncoder = 0, kDecoder = 1 };
inline constexpr int kPartCount = 2;

struct Store {
  std::string name;     // for people: "csa.kv", "window"
  StoreKind kind = StoreKind::kBlock;
  Part part = Part::kDecoder;
  uint16_t layers = 1;  // rows of one position exist once per layer
  uint16_t ratio = 1;   // tokens per row (block stores)
  uint32_t row_bytes = 0;  // of one layer's row
  uint32_t rows = 0;    // ring length (window, carry); 0 for block stores
};

class CacheLayout {
 public:
  CacheLayout() = default;
  CacheLayout(uint32_t block_tokens, std::vector<Store> stores);

  // Positive sizes, ratios that divide the block, rings with rows, pages below 1 TiB.
  absl::Status Validate() const;

  uint32_t block_tokens() const { return block_tokens_; }
  const std::vector<Store>& stores() const { return stores_; }
  bool has(Part part) const { return page_bytes(part) > 0; }
  // Bytes of one page of a part; 0 if the part has no block store. A multiple of 64.
  size_t page_bytes(Part part) const { return page_bytes_[static_cast<int>(part)]; }
  // Bytes of one sequence's state page: all windows and carries. A multiple of 64, maybe 0.
  size_t state_bytes() const { return state_bytes_; }

  // Byte offset, within a page of the store's part, of the row of `layer` that holds the token at
  // `index_in_block` (0 ... block_tokens - 1).
  size_t PageOffset(int store, int layer, uint32_t index_in_block) const;
  // Byte offset, within the state page, of the ring row for `position`.
  size_t StateOffset(int store, int layer, uint32_t position) const;

  // Blocks that hold `tokens` tokens.
  uint32_t BlocksFor(uint32_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  // SHA-256 over every field; equal on both sides of a hand-over.
  std::string Digest() const;

 private:
  uint32_t block_tokens_ = 0;
  std::vector<Store> stores_;
  std::vector<size_t> bases_;  // offset of each store within its page or state page
  size_t page_bytes_[kPartCount] = {0, 0};
  size_t state_bytes_ = 0;
};

}  // namespace weir::engine
