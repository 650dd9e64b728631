// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/stdx/check.h"
#include "base/stdx/random.h"

// Saves the callee's registers and the stack pointer, takes another stack and its registers. It
// ends with a jump and not a return, which would always mispredict the processor's return stack.
extern "C" void weir_simt_switch(void** save, void* to);
asm(R"(.text
.globl weir_simt_switch
.type weir_simt_switch,@function
weir_simt_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  popq %rcx
  jmp *%rcx
.size weir_simt_switch,.-weir_simt_switch)");

namespace weir::kernels::simt {

thread_local ThreadView* g_thread = nullptr;
thread_local Machine* g_machine = nullptr;

namespace {

constexpr uint64_t kIdleYieldsMax = 20000;  // by each live thread: nobody will end this spinning

void FiberMain() {
  g_machine->thread_main();
  g_machine->ExitFiber();
}

size_t PowerOfTwoAbove(size_t n) {
  size_t power = 1;
  while (power <= n) power *= 2;
  return power;
}

}  // namespace

Machine::Machine(const Options& options_in, const Shape& shape_in,
                 const std::function<void()>& thread_main_in)
    : options(options_in), shape(shape_in), thread_main(thread_main_in), random_(options_in.seed) {
  const dim3 block = shape.block;
  const auto threads = static_cast<int>(block.x * block.y * block.z);
  grid_blocks_ = shape.grid.x * shape.grid.y * shape.grid.z;
  WEIR_CHECK(threads > 0 && threads <= kThreadsMax && shape.shared_bytes <= kSharedMax);
  WEIR_CHECK(grid_blocks_ > 0 && grid_blocks_ < kBlocksMax);
  if (options.memory != nullptr) launch = options.memory->BeginLaunch();
  const uint32_t resident = shape.together ? grid_blocks_ : 1;
  for (uint32_t i = 0; i < resident; ++i) {
    auto made = std::make_unique<Block>();
    made->threads = threads;
    made->window = static_cast<unsigned char*>(std::aligned_alloc(kWindowBytes, kWindowBytes));
    void* stacks = mmap(nullptr, kStackBytes * static_cast<size_t>(threads), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    WEIR_CHECK(made->window != nullptr && stacks != MAP_FAILED);
    made->stacks = static_cast<unsigned char*>(stacks);
    if (options.check) made->shadow = std::make_unique<Shadow>(made->window, kWindowBytes);
    blocks_.push_back(std::move(made));
  }
  ready_.resize(PowerOfTwoAbove(static_cast<size_t>(threads) * resident));
}

Machine::~Machine() {
  for (const auto& block : blocks_) {
    munmap(block->stacks, kStackBytes * static_cast<size_t>(block->threads));
    std::free(block->window);
  }
}

void Machine::Execute() {
  Machine* const outer = g_machine;
  g_machine = this;
  for (const auto& block : blocks_) StartBlock(block.get());
  size_t running = blocks_.size();
  while (running > 0 && !dead_) {
    Fiber* fiber = Next();
    if (fiber == nullptr) {
      ReportDeadlock();
      break;
    }
    g_thread = fiber;
    ++report.counters.switches;
    weir_simt_switch(&home_, fiber->stack_pointer);
    g_thread = nullptr;
    for (const auto& block : blocks_) {
      if (dead_ || block->alive > 0 || block->fibers.empty()) continue;
      RetireBlock(block.get());
      if (next_block_ < grid_blocks_) {
        StartBlock(block.get());
      } else {
        --running;
      }
    }
  }
  g_machine = outer;
}

void Machine::StartBlock(Block* block) {
  block->number = next_block_++;
  block->alive = block->threads;
  block->fibers.clear();
  block->fibers.resize(static_cast<size_t>(block->threads));
  block->warps.clear();
  block->warps.resize(static_cast<size_t>((block->threads + 31) / 32));
  block->barriers.fill(NamedBarrier());
  block->mbarriers.clear();
  std::memset(block->window, 0xff, shape.shared_bytes);  // reads as NaN
  if (options.check) {
    block->clocks.Reset(block->threads, block->number);
    // A little beyond, so that an access there is told from one of a stray address.
    block->shadow->Reset(std::min(shape.shared_bytes + 4096, kWindowBytes), shape.shared_bytes);
  }
  for (int thread = 0; thread < block->threads; ++thread) StartFiber(block, thread);
}

void Machine::StartFiber(Block* block, int thread) {
  Fiber& fiber = block->fibers[static_cast<size_t>(thread)];
  const auto t = static_cast<unsigned>(thread);
  const dim3 size = shape.block;
  fiber.thread_index = {t % size.x, t / size.x % size.y, t / (size.x * size.y)};
  const dim3 grid = shape.grid;
  const uint32_t b = block->number;
  fiber.block_index = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
  fiber.block_size = size;
  fiber.grid_size = grid;
  fiber.shared = block->window;
  fiber.lane = thread % 32;
  fiber.warp = thread / 32;
  fiber.thread = thread;
  fiber.block = block;
  fiber.done = false;
  // Stack tops are spread over cache sets, or the hot frames of all threads would share a few.
  unsigned char* top = block->stacks + kStackBytes * (t + 1) - 64 - size_t{t % 29} * 320;
  auto** stack = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{63});
  *--stack = nullptr;
  *--stack = reinterpret_cast<void*>(&FiberMain);
  for (int i = 0; i < 6; ++i) *--stack = nullptr;
  fiber.stack_pointer = stack;
  Ready(&fiber);
}

void Machine::RetireBlock(Block* block) {
  while (!flights.empty() && LandOne()) {
  }
  block->traffic.Settle(&report.counters);
  for (size_t first = 0; first + 3 < block->warps.size(); first += 4) {
    for (size_t w = first + 1; w < first + 4; ++w) {
      if (block->warps[w].wgmma_count == block->warps[first].wgmma_count) continue;
      report.Add(FindingKind::kDivergent, {"wgmma"},
                 "the four warps of a warpgroup multiplied a different number of times");
    }
  }
  block->fibers.clear();
}

Fiber* Machine::Next() {
  while (count_ == 0) {
    if (!LandOne()) return nullptr;
  }
  const size_t mask = ready_.size() - 1;
  if (options.seed != 0 && count_ > 1) {
    random_ = Mix64(random_ + 0x9e3779b97f4a7c15ULL);
    std::swap(ready_[head_ & mask], ready_[(head_ + random_ % count_) & mask]);
  }
  --count_;
  return ready_[head_++ & mask];
}

void Machine::Ready(Fiber* fiber) { ready_[(head_ + count_++) & (ready_.size() - 1)] = fiber; }

bool Machine::Flip() {
  if (options.seed == 0) return false;
  random_ = Mix64(random_ + 0x9e3779b97f4a7c15ULL);
  return (random_ & 1) != 0;
}

bool Machine::Sabotaged(Sabotage what, Site at) {
  if (options.sabotage == Sabotage::kNone) return false;
  const auto kind = static_cast<size_t>(what);
  std::vector<Site>& places = sabotage_places_[kind];
  const auto found = std::find(places.begin(), places.end(), at);
  const auto place = static_cast<int>(found - places.begin());
  if (found == places.end()) {
    places.push_back(at);
    report.sabotage_places[kind] = place + 1;
  }
  return options.sabotage == what && place == options.sabotage_place;
}

void Machine::SwitchFrom(void** save) {
  Fiber* next = Next();
  if (next == nullptr) {
    ReportDeadlock();
    g_thread = nullptr;
    weir_simt_switch(save, home_);  // for good
  }
  g_thread = next;
  // What it waits for came while it parked: its stack pointer is that of an earlier switch.
  if (save == &next->stack_pointer) return;
  ++report.counters.switches;
  weir_simt_switch(save, next->stack_pointer);
}

void Machine::Park(const char* waits_for, Site at) {
  Fiber* self = Self();
  self->waits_for = waits_for;
  self->waits_at = at;
  idle_yields = 0;
  if (Flip() && Flip() && Flip()) LandOne();
  SwitchFrom(&self->stack_pointer);
}

void Machine::Yield() {
  Fiber* self = Self();
  self->waits_for = "a value in memory";
  if (++idle_yields > kIdleYieldsMax + 64 * count_ && flights.empty()) {
    ReportDeadlock();
    g_thread = nullptr;
    weir_simt_switch(&self->stack_pointer, home_);
  }
  if (idle_yields % 64 == 0) LandOne();
  Ready(self);
  SwitchFrom(&self->stack_pointer);
}

void Machine::ExitFiber() {
  Fiber* self = Self();
  const auto unwaited = [&](const char* what, Site at) {
    report.Add(FindingKind::kMisuse, {what, at}, "its thread ends without waiting for it");
  };
  if (!self->open_copies.empty()) unwaited("cp.async", self->open_copies.front().at);
  for (const auto& group : self->copy_groups) {
    if (!group.empty()) unwaited("cp.async", group.front().at);
  }
  for (const Flight& flight : flights) {
    if (flight.store && flight.fiber == self) unwaited("bulk store", flight.at);
  }
  Block* block = self->block;
  const Warp& warp = block->warps[static_cast<size_t>(self->warp)];
  if (!warp.in_flight.empty()) {
    unwaited("wgmma", warp.open_products.empty() ? warp.product_groups.front().front().at
                                                 : warp.open_products.front().at);
  }
  self->done = true;
  --block->alive;
  EndOfThread(block);
  void* never;
  if (block->alive == 0) {
    g_thread = nullptr;
    weir_simt_switch(&never, home_);
  }
  SwitchFrom(&never);
  std::abort();  // nobody resumes a thread that has ended
}

void Machine::ReportDeadlock() {
  dead_ = true;
  std::map<std::string, int> stuck;
  Origin origin{"nothing can run"};
  for (const auto& block : blocks_) {
    for (const Fiber& fiber : block->fibers) {
      if (fiber.done) continue;
      origin.site = fiber.waits_at;
      ++stuck[std::string(fiber.waits_for) + " at " + fiber.waits_at.Text()];
    }
  }
  std::string detail;
  for (const auto& [where, threads] : stuck) {
    detail += (detail.empty() ? "" : "; ") + std::to_string(threads) + " wait for " + where;
  }
  report.Add(FindingKind::kDeadlock, origin, detail);
}

Report Run(const Options& options, const Shape& shape, const std::function<void()>& thread_main) {
  Machine machine(options, shape, thread_main);
  machine.Execute();
  return std::move(machine.report);
}

}  // namespace weir::kernels::simt
