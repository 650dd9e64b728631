// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/cache_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "base/stdx/units.h"

namespace weir::engine {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and enough for every vector load
constexpr size_t kBytesMax = size_t{1} << 40;

size_t RowsOf(const Store& store, uint32_t block_tokens) {
  if (store.kind != StoreKind::kBlock) return store.rows;
  return store.ratio == 0 ? 0 : block_tokens / store.ratio;
}

}  // namespace

CacheLayout::CacheLayout(uint32_t block_tokens, std::vector<Store> stores)
    : block_tokens_(block_tokens), stores_(std::move(stores)) {
  for (const Store& store : stores_) {
    size_t& total = store.kind == StoreKind::kBlock ? page_bytes_[static_cast<int>(store.part)]
                                                    : state_bytes_;
    bases_.push_back(total);
    total = AlignUp(total + RowsOf(store, block_tokens_) * store.layers * store.row_bytes,
                    kAlignment);
  }
}

absl::Status CacheLayout::Validate() const {
  if (block_tokens_ == 0) return Error(Reason::kBadField, "block_tokens must be positive");
  for (const Store& store : stores_) {
    const auto fail = [&store](const char* what) {
      return Error(Reason::kBadField, absl::StrCat("store ", store.name, ": ", what));
    };
    if (store.row_bytes == 0 || store.layers == 0) {
      return fail("row bytes and layers must be positive");
    }
    if (store.ratio == 0 || block_tokens_ % store.ratio != 0) {
      return fail("ratio must divide the block");
    }
    if (store.kind != StoreKind::kBlock && store.rows == 0) return fail("a ring needs rows");
  }
  if (page_bytes_[0] > kBytesMax || page_bytes_[1] > kBytesMax || state_bytes_ > kBytesMax) {
    return Error(Reason::kBadField, "a page of this layout exceeds 1 TiB");
  }
  return absl::OkStatus();
}

size_t CacheLayout::PageOffset(int store, int layer, uint32_t index_in_block) const {
  const Store& s = stores_[static_cast<size_t>(store)];
  const size_t rows = block_tokens_ / s.ratio;
  return bases_[static_cast<size_t>(store)] +
         (static_cast<size_t>(layer) * rows + index_in_block / s.ratio) * s.row_bytes;
}

size_t CacheLayout::StateOffset(int store, int layer, uint32_t position) const {
  const Store& s = stores_[static_cast<size_t>(store)];
  return bases_[static_cast<size_t>(store)] +
         (static_cast<size_t>(layer) * s.rows + position % s.rows) * s.row_bytes;
}

std::string CacheLayout::Digest() const {
  std::string text = absl::StrCat("block_tokens=", block_tokens_);
  for (const Store& s : stores_) {
    absl::StrAppend(&text, ";", s.name, ",", static_cast<int>(s.kind), ",",
                    static_cast<int>(s.part), ",", s.layers, ",", s.ratio, ",", s.row_bytes, ",",
                    s.rows);
  }
  const Sha256Digest digest = Sha256(BytesOf(text));
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

}  // namespace weir::engine
