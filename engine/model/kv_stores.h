// SPDX-License-Identifier: Apache-2.0
//
// KvStores: an engine's pages as kernels address them: a store of the layout, by number, becomes a
// PagedKv or RingKv over the current pass's tables. Owned by one model; the memory must outlive it.
// Nothing blocks; a store that does not exist is a bug.
#pragma once

#include "engine/cache/kv_memory.h"
#include "engine/model/step_inputs.h"
#include "engine/sched/step_plan.h"
#include "kernels/op/backend.h"
#include "kernels/op/rows.h"

namespace weir::engine {

class KvStores {
 public:
  // `formats`: how rows of each store lie, by store number.
  KvStores(const CacheLayout& layout, std::vector<kernels::RowFormat> formats,
           const KvMemory& memory);

  // Copies on write that the plan asks for, before its rows.
  void CopyPages(kernels::Stream& stream, const StepPlan& plan) const;
  kernels::PagedKv Block(int store, int layer, const StepInputs& inputs) const;
  kernels::RingKv Ring(int store, int layer, const StepInputs& inputs) const;

 private:
  const CacheLayout& layout_;
  const std::vector<kernels::RowFormat> formats_;
  const KvMemory memory_;
};

}  // namespace weir::engine
