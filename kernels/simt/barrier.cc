// SPDX-License-Identifier: Apache-2.0
//
// Barriers of a block: __syncthreads and named ones, and mbarriers in shared memory. A barrier
// orders what was before it in every thread that arrived with what is after it in every thread that
// waited.
#include <string>

#include "kernels/simt/machine.h"

namespace weir::kernels::simt {
namespace {

void Complete(Block* block, NamedBarrier* barrier, Fiber* self) {
  if (g_machine->options.check) {
    if (barrier->arrived >= block->threads) {
      block->clocks.SyncAll();
    } else {
      block->clocks.Sync(barrier->members);
    }
  }
  for (Fiber* fiber : barrier->waiting) {
    if (fiber != self) g_machine->Ready(fiber);
  }
  *barrier = NamedBarrier();
}

// Counts the caller in; true when it is the last.
bool Arrive(Fiber* self, int id, int threads, bool whole_block, Site at) {
  Report& report = g_machine->report;
  report.counters.of(Instruction::kBarrier) += self->lane == 0 ? 1 : 0;
  NamedBarrier& barrier = self->block->barriers[static_cast<size_t>(id)];
  if (barrier.arrived == 0) {
    barrier.at = at;
    barrier.expected = threads;
  } else if (barrier.expected != threads || (whole_block && !(barrier.at == at))) {
    report.Add(FindingKind::kDivergent, {"barrier", at},
               "others are at the same barrier at " + barrier.at.Text());
  }
  barrier.members.push_back(self->thread);
  return ++barrier.arrived >= barrier.expected;
}

bool ValidBarrier(int id, int threads, Site at) {
  if (id >= 0 && id < kNamedBarriers && threads > 0 && threads % 32 == 0 &&
      threads <= Self()->block->threads) {
    return true;
  }
  g_machine->report.Add(FindingKind::kMisuse, {"barrier", at},
                        "barrier " + std::to_string(id) + " of " + std::to_string(threads) +
                            " threads: ids are 0 to 15, threads full warps of the block");
  return false;
}

void Wait(Fiber* self, int id, int threads, bool whole_block, Site at) {
  Block* block = self->block;
  NamedBarrier& barrier = block->barriers[static_cast<size_t>(id)];
  const bool last = Arrive(self, id, threads, whole_block, at);
  barrier.waiting.push_back(self);
  if (last) {
    Complete(block, &barrier, self);
  } else {
    g_machine->Park("a barrier", at);
  }
}

Mbarrier* Find(uint64_t* barrier, const char* what, Site at) {
  Fiber* self = Self();
  Block* block = self->block;
  const Origin origin{what, at};
  if (InWindow(*block, barrier)) {
    const auto found = block->mbarriers.find(WindowOffset(*block, barrier));
    if (found != block->mbarriers.end()) {
      Mbarrier* m = &found->second;
      if (g_machine->options.check && m->made != 0 &&
          !block->clocks.Ordered(ActorOf(m->made), ClockOf(m->made), self->thread)) {
        g_machine->report.Add(FindingKind::kRace, origin,
                              "nothing orders it after its mbarrier.init");
      }
      return m;
    }
  }
  g_machine->report.Add(FindingKind::kMisuse, origin, "no mbarrier has been initialised there");
  return nullptr;
}

void CompletePhase(Mbarrier* m) {
  if (m->pending != 0 || m->bytes != 0) return;
  m->phase ^= 1;
  m->pending = m->expected;
  if (g_machine->options.check) m->completed = m->arriving;
  for (Fiber* fiber : m->waiting) g_machine->Ready(fiber);
  m->waiting.clear();
}

}  // namespace

void SyncThreads(Site at) {
  Fiber* self = Self();
  if (g_machine->Sabotaged(Sabotage::kSkipBarrier, at)) return;
  Wait(self, 0, self->block->alive, /*whole_block=*/true, at);
}

void BarrierSync(int id, int threads, Site at) {
  if (g_machine->Sabotaged(Sabotage::kSkipBarrier, at)) return;
  if (ValidBarrier(id, threads, at)) Wait(Self(), id, threads, /*whole_block=*/false, at);
}

void BarrierArrive(int id, int threads, Site at) {
  if (!ValidBarrier(id, threads, at)) return;
  Fiber* self = Self();
  NamedBarrier& barrier = self->block->barriers[static_cast<size_t>(id)];
  if (Arrive(self, id, threads, /*whole_block=*/false, at)) Complete(self->block, &barrier, self);
}

// __syncthreads counts the threads that have not ended.
void EndOfThread(Block* block) {
  NamedBarrier& barrier = block->barriers[0];
  if (barrier.arrived == 0 || barrier.expected != block->alive + 1) return;
  barrier.expected = block->alive;
  if (barrier.arrived >= barrier.expected) Complete(block, &barrier, nullptr);
}

void MbarrierInit(uint64_t* barrier, int arrivals, Site at) {
  Fiber* self = Self();
  Block* block = self->block;
  const Origin origin{"mbarrier.init", at};
  if (!InWindow(*block, barrier) || reinterpret_cast<uintptr_t>(barrier) % 8 != 0 || arrivals < 1) {
    g_machine->report.Add(FindingKind::kMisuse, origin,
                          "wants eight aligned bytes of shared memory and an arrival at least");
    return;
  }
  CheckAccess(self, barrier, 8, Access::kWrite, origin);
  const uint32_t offset = WindowOffset(*block, barrier);
  const auto [found, fresh] = block->mbarriers.try_emplace(offset);
  Mbarrier m;
  m.expected = m.pending = arrivals;
  if (g_machine->options.check) {
    m.agent = fresh ? block->clocks.AddAgent() : found->second.agent;
    m.made =
        MakeStamp(g_machine->launch, block->number, self->thread, block->clocks.now(self->thread));
  }
  found->second = m;
}

void MbarrierFence(Site at) {
  Fiber* self = Self();
  if (g_machine->Sabotaged(Sabotage::kSkipMbarrierFence, at)) return;
  for (auto& [offset, m] : self->block->mbarriers) {
    if (ActorOf(m.made) == self->thread) m.fenced = true;
  }
}

void MbarrierArrive(uint64_t* barrier, int64_t expect_bytes, Site at) {
  Fiber* self = Self();
  ++g_machine->report.counters.of(Instruction::kMbarrier);
  if (g_machine->Sabotaged(Sabotage::kSkipMbarrierArrive, at)) return;
  if (expect_bytes != 0 && g_machine->Sabotaged(Sabotage::kExpectLess, at)) expect_bytes /= 2;
  Mbarrier* m = Find(barrier, "mbarrier.arrive", at);
  if (m == nullptr) return;
  m->bytes += expect_bytes;
  if (--m->pending < 0) {
    g_machine->report.Add(FindingKind::kMisuse, {"mbarrier.arrive", at},
                          "more arrivals than the phase expects");
    m->pending = 0;
  }
  if (g_machine->options.check) self->block->clocks.Release(self->thread, &m->arriving);
  g_machine->idle_yields = 0;
  CompletePhase(m);
}

void MbarrierWait(uint64_t* barrier, uint32_t parity, Site at) {
  Fiber* self = Self();
  ++g_machine->report.counters.of(Instruction::kMbarrier);
  if (g_machine->Sabotaged(Sabotage::kSkipMbarrierWait, at)) return;
  if (g_machine->Sabotaged(Sabotage::kWrongPhase, at)) parity ^= 1;
  Mbarrier* m = Find(barrier, "mbarrier.try_wait", at);
  if (m == nullptr) return;
  // The phase of this parity has completed once the current one has the other parity.
  while (m->phase == (parity & 1)) {
    m->waiting.push_back(self);
    g_machine->Park("an mbarrier", at);
  }
  if (g_machine->options.check) self->block->clocks.Acquire(self->thread, m->completed);
}

void MbarrierLanded(Block* block, uint32_t offset, int64_t bytes, bool arrives, Site at) {
  const auto found = block->mbarriers.find(offset);
  if (found == block->mbarriers.end()) {
    g_machine->report.Add(FindingKind::kMisuse, {"asynchronous copy", at},
                          "ends on an mbarrier that nobody has initialised");
    return;
  }
  Mbarrier* m = &found->second;
  const Origin origin{"asynchronous copy", at};
  if (g_machine->options.check) {
    if (!arrives && !m->fenced) {
      g_machine->report.Add(FindingKind::kProxyFence, origin,
                            "no fence has shown its mbarrier's init to the copy engine");
    }
    if (m->arriving.size() <= static_cast<size_t>(m->agent)) {
      m->arriving.resize(static_cast<size_t>(block->threads + kAgentsMax));
    }
    m->arriving[static_cast<size_t>(m->agent)] = block->clocks.now(m->agent);
    block->clocks.Tick(m->agent);
  }
  if (arrives) {
    if (--m->pending < 0) {
      g_machine->report.Add(FindingKind::kMisuse, origin, "more arrivals than the phase expects");
      m->pending = 0;
    }
  } else {
    m->bytes -= bytes;
  }
  CompletePhase(m);
}

}  // namespace weir::kernels::simt
