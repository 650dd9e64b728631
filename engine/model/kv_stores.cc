// SPDX-License-Identifier: Apache-2.0
#include "engine/model/kv_stores.h"

#include <utility>

#include "base/stdx/check.h"

namespace weir::engine {

KvStores::KvStores(const CacheLayout& layout, std::vector<kernels::RowFormat> formats,
                   const KvMemory& memory)
    : layout_(layout), formats_(std::move(formats)), memory_(memory) {
  WEIR_CHECK(formats_.size() == layout_.stores().size());
  WEIR_CHECK(memory_.state_bytes == layout_.state_bytes());
  for (int part = 0; part < kPartCount; ++part) {
    WEIR_CHECK(memory_.page_bytes[part] == layout_.page_bytes(static_cast<Part>(part)));
  }
}

void KvStores::CopyPages(kernels::Stream& stream, const StepPlan& plan) const {
  for (const PageCopy& copy : plan.copies) {
    if (copy.kind == PageCopy::Kind::kState) {
      stream.Copy(reinterpret_cast<uintptr_t>(memory_.State(copy.to)),
                  reinterpret_cast<uintptr_t>(memory_.State(copy.from)), memory_.state_bytes);
      continue;
    }
    stream.Copy(reinterpret_cast<uintptr_t>(memory_.Page(copy.part, copy.to)),
                reinterpret_cast<uintptr_t>(memory_.Page(copy.part, copy.from)),
                memory_.page_bytes[static_cast<int>(copy.part)]);
  }
}

kernels::PagedKv KvStores::Block(int store, int layer, const StepInputs& inputs) const {
  const Store& s = layout_.stores().at(static_cast<size_t>(store));
  WEIR_CHECK(s.kind == StoreKind::kBlock && layer < s.layers);
  kernels::PagedKv kv;
  kv.base = reinterpret_cast<uintptr_t>(memory_.part_base[static_cast<int>(s.part)]);
  kv.page_bytes = static_cast<int64_t>(layout_.page_bytes(s.part));
  kv.layer_offset = static_cast<int64_t>(layout_.PageOffset(store, layer, 0));
  kv.row_bytes = s.row_bytes;
  kv.page_tokens = static_cast<int32_t>(layout_.block_tokens());
  kv.ratio = s.ratio;
  kv.format = formats_[static_cast<size_t>(store)];
  kv.table = inputs.block_table(s.part);
  kv.table_stride = inputs.table_stride();
  return kv;
}

kernels::RingKv KvStores::Ring(int store, int layer, const StepInputs& inputs) const {
  const Store& s = layout_.stores().at(static_cast<size_t>(store));
  WEIR_CHECK(s.kind != StoreKind::kBlock && layer < s.layers);
  kernels::RingKv ring;
  ring.base = reinterpret_cast<uintptr_t>(memory_.state_base);
  ring.state_bytes = static_cast<int64_t>(layout_.state_bytes());
  ring.layer_offset = static_cast<int64_t>(layout_.StateOffset(store, layer, 0));
  ring.row_bytes = s.row_bytes;
  ring.ring_rows = static_cast<int32_t>(s.rows);
  ring.format = formats_[static_cast<size_t>(store)];
  ring.state = inputs.state();
  return ring;
}

}  // namespace weir::engine
