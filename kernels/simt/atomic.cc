// SPDX-License-Identifier: Apache-2.0
//
// Atomics and fences. A release at an address leaves there what its thread has seen, an acquire
// takes it; a relaxed access becomes either through __threadfence before or after it, as in C++.
#include <cstring>

#include "kernels/simt/machine.h"

namespace weir::kernels::simt {
namespace {

uint64_t Fetch(const void* p, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, p, bytes);
  return value;
}

bool Acquires(Order order) { return order == Order::kAcquire || order == Order::kAcquireRelease; }
bool Releases(Order order) { return order == Order::kRelease || order == Order::kAcquireRelease; }

void TakeFrom(Fiber* self, const void* p, Order order) {
  const auto found = g_machine->atomics.find(reinterpret_cast<uintptr_t>(p));
  if (found == g_machine->atomics.end()) return;
  if (Acquires(order)) {
    self->block->clocks.Acquire(self->thread, found->second);
  } else {
    if (self->to_acquire == nullptr) self->to_acquire = std::make_unique<Knowledge>();
    RaiseTo(found->second, self->to_acquire.get());
  }
}

void LeaveAt(Fiber* self, const void* p, Order order) {
  if (!Releases(order) && self->released == nullptr) return;
  Knowledge* there = &g_machine->atomics[reinterpret_cast<uintptr_t>(p)];
  if (Releases(order)) {
    self->block->clocks.Release(self->thread, there);
  } else {
    RaiseTo(*self->released, there);
  }
}

void Check(Fiber* self, const void* p, size_t bytes, Access access, Site at) {
  const Origin origin{"atomic", at};
  ++g_machine->report.counters.of(Instruction::kAtomic);
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) {
    g_machine->report.Add(FindingKind::kMisaligned, origin, "is not on its own size");
  }
  CheckAccess(self, p, bytes, access, origin);
}

Order Sabotaged(Order order, Site at) {
  const bool relaxed = order != Order::kRelaxed && g_machine->Sabotaged(Sabotage::kRelaxAtomic, at);
  return relaxed ? Order::kRelaxed : order;
}

}  // namespace

void ThreadFence(Site at) {
  Fiber* self = Self();
  if (!g_machine->options.check || g_machine->Sabotaged(Sabotage::kSkipThreadFence, at)) return;
  if (self->to_acquire != nullptr) {
    self->block->clocks.Acquire(self->thread, *self->to_acquire);
    self->to_acquire.reset();
  }
  self->released = std::make_unique<Knowledge>();
  self->block->clocks.Release(self->thread, self->released.get());
}

uint64_t AtomicLoad(const void* p, size_t bytes, Order order, Site at) {
  Fiber* self = Self();
  order = Sabotaged(order, at);
  self->waits_at = at;
  g_machine->Yield();
  Check(self, p, bytes, Access::kAtomicLoad, at);
  if (g_machine->options.check) TakeFrom(self, p, order);
  return Fetch(p, bytes);
}

void AtomicStore(void* p, size_t bytes, uint64_t value, Order order, Site at) {
  Fiber* self = Self();
  order = Sabotaged(order, at);
  g_machine->idle_yields = 0;
  Check(self, p, bytes, Access::kAtomicStore, at);
  if (g_machine->options.check) LeaveAt(self, p, order);
  std::memcpy(p, &value, bytes);
}

uint64_t AtomicUpdate(void* p, size_t bytes, uint64_t (*update)(uint64_t old, const void* context),
                      const void* context, Order order, Site at) {
  Fiber* self = Self();
  order = Sabotaged(order, at);
  g_machine->idle_yields = 0;
  Check(self, p, bytes, Access::kAtomic, at);
  if (g_machine->options.check) {
    TakeFrom(self, p, order);
    LeaveAt(self, p, order);
  }
  const uint64_t old = Fetch(p, bytes);
  const uint64_t next = update(old, context);
  std::memcpy(p, &next, bytes);
  return old;
}

}  // namespace weir::kernels::simt
