// SPDX-License-Identifier: Apache-2.0
//
// The inside of a launch: fibers, warps, blocks and the machine that schedules them. One Machine
// lives on the launching thread's stack for the length of a launch; every function here runs on
// that thread, most of them on a fiber's stack. Blocks and fibers are reused for block after block.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/simt/clocks.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/runtime.h"
#include "kernels/simt/shadow.h"
#include "kernels/simt/traffic.h"

namespace weir::kernels::simt {

constexpr size_t kWindowBytes = 256 * 1024;  // of shared memory, aligned to its size's swizzles
constexpr size_t kStackBytes = 64 * 1024;
constexpr int kNamedBarriers = 16;

struct Block;

// One stretch of an asynchronous copy; a null source writes zeros.
struct Piece {
  unsigned char* to = nullptr;
  const unsigned char* from = nullptr;
  size_t bytes = 0;
};

struct PendingCopy {
  std::vector<Piece> pieces;
  Site at;
};

struct Fiber : ThreadView {
  void* stack_pointer = nullptr;
  Block* block = nullptr;
  int thread = 0;
  int warp = 0;
  bool done = true;
  const char* waits_for = "";
  Site waits_at;
  std::vector<PendingCopy> open_copies;              // cp.async, not yet committed
  std::deque<std::vector<PendingCopy>> copy_groups;  // committed, oldest first
  std::vector<uint64_t> open_stores;                 // bulk stores by number
  std::deque<std::vector<uint64_t>> store_groups;
  uint32_t proxy_fence = 0;               // clock of the last fence.proxy.async
  ClockVector fenced;                     // what it had seen by then
  std::unique_ptr<Knowledge> released;    // what the last __threadfence saw
  std::unique_ptr<Knowledge> to_acquire;  // by the next __threadfence
};

// Lanes of one warp on their way to a collective.
struct Meeting {
  uint32_t arrived = 0;
  uint32_t mask = 0;
  Collective what{};
  Site at;
  std::array<void*, 32> argument{};
};

// One wgmma as one warp sees it: 16 of the 64 rows.
struct WarpProduct {
  WgmmaShape shape;
  uint64_t a = 0;
  uint64_t b = 0;
  bool accumulate = true;
  std::array<std::array<uint32_t, 4>, 32> a_registers{};
  std::array<float*, 32> c{};
  Site at;
};

// Sums of products under way: kept here, and NaN where the kernel would look.
struct Accumulators {
  std::vector<float> values;  // lane by lane
  std::array<float*, 32> lanes{};
};

struct Warp {
  std::array<Meeting, 32> meetings;  // by the lowest lane of their mask
  bool wgmma_fenced = false;
  uint64_t wgmma_count = 0;
  std::vector<WarpProduct> open_products;
  std::deque<std::vector<WarpProduct>> product_groups;
  std::map<float*, Accumulators> in_flight;  // by lane 0's address
};

struct NamedBarrier {
  int arrived = 0;
  int expected = 0;
  Site at;
  std::vector<Fiber*> waiting;
  std::vector<int> members;
};

struct Mbarrier {
  int expected = 0;
  int pending = 0;
  int64_t bytes = 0;  // of copies announced and not landed
  uint32_t phase = 0;
  int agent = 0;
  bool fenced = false;
  Stamp made = 0;
  ClockVector arriving;   // what arrivals so far have seen
  ClockVector completed;  // what waiting for the last completed phase shows
  std::vector<Fiber*> waiting;
};

struct Block {
  uint32_t number = 0;
  int threads = 0;
  int alive = 0;
  unsigned char* window = nullptr;
  unsigned char* stacks = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::array<NamedBarrier, kNamedBarriers> barriers;
  std::unordered_map<uint32_t, Mbarrier> mbarriers;  // by offset in the window
  Clocks clocks;
  std::unique_ptr<Shadow> shadow;
  Traffic traffic;
};

// An asynchronous engine's work: a copy that a mbarrier counts, an arrival that waits for copies,
// or a store that its thread waits for.
struct Flight {
  uint64_t number = 0;
  Block* block = nullptr;
  Fiber* fiber = nullptr;
  std::vector<Piece> pieces;
  int64_t counted_bytes = 0;  // for the mbarrier
  uint32_t mbarrier = 0;      // offset; unused by stores
  bool arrives = false;       // counts as an arrival, not in bytes
  bool store = false;
  Site at;
};

class Machine {
 public:
  Machine(const Options& options, const Shape& shape, const std::function<void()>& thread_main);
  ~Machine();
  void Execute();

  // ---- on a fiber
  // Gives the thread's turn away until somebody calls Ready; ends the launch on a deadlock.
  void Park(const char* waits_for, Site at);
  void Yield();  // behind all that are ready
  void Ready(Fiber* fiber);
  [[noreturn]] void ExitFiber();

  // Lands one flight that is due; false when there is none.
  bool LandOne();
  void LandStore(uint64_t number);
  void Add(Flight flight);

  // Whether this is the place where this mistake is to be made.
  bool Sabotaged(Sabotage what, Site at);

  bool Flip();  // a coin of the seed; false without one

  Options options;
  Shape shape;
  Report report;
  uint32_t launch = 1;
  std::deque<Flight> flights;
  uint64_t flights_made = 0;
  std::unordered_map<uintptr_t, Knowledge> atomics;  // what releases at an address have seen
  uint64_t idle_yields = 0;
  const std::function<void()>& thread_main;

 private:
  void StartBlock(Block* block);
  void StartFiber(Block* block, int thread);
  void RetireBlock(Block* block);
  Fiber* Next();
  void SwitchFrom(void** save);  // to whoever is next
  void ReportDeadlock();
  uint64_t random_;
  std::array<std::vector<Site>, kSabotages> sabotage_places_;  // by kind
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Fiber*> ready_;  // a ring; its size is a power of two
  size_t head_ = 0;
  size_t count_ = 0;
  uint32_t next_block_ = 0;
  uint32_t grid_blocks_ = 0;
  void* home_ = nullptr;  // the launching thread's own stack
  bool dead_ = false;
};

extern thread_local Machine* g_machine;
inline Fiber* Self() { return static_cast<Fiber*>(g_thread); }

// ---- checks; each does nothing unless Options::check
// A copy may take bytes that nobody wrote: what it makes of them is unwritten too.
enum class Access : uint8_t {
  kRead,
  kWrite,
  kAtomic,
  kAtomicLoad,
  kAtomicStore,
  kCopyRead,
  kAsyncRead,      // by wgmma
  kAsyncCopyRead,  // by the copy engine
  kAsyncWrite
};

void CheckAccess(Fiber* fiber, const void* p, size_t bytes, Access access, const Origin& origin);
// The bytes have now been written by `actor` (a thread or an agent) of the block.
void MarkLanded(Block* block, const Piece& piece, int actor, bool plain);
void MarkFlag(Block* block, const void* p, size_t bytes, ByteFlag flag, bool on);

inline bool InWindow(const Block& block, const void* p) {
  return static_cast<size_t>(static_cast<const unsigned char*>(p) - block.window) < kWindowBytes;
}
uint32_t WindowOffset(const Block& block, const void* p);

// A thread of the block has ended: a barrier may have waited for it alone.
void EndOfThread(Block* block);
// Moves the bytes, tells the shadow and the mbarrier, wakes who waited.
void Land(const Flight& flight);
// So many announced bytes have landed, or one arrival has come, by an agent that the copies share.
void MbarrierLanded(Block* block, uint32_t offset, int64_t bytes, bool arrives, Site at);

// ---- parts of collectives, run by the last lane to arrive
void LoadMatrixTiles(Fiber* self, const Meeting& meeting);
void StoreMatrixTiles(Fiber* self, const Meeting& meeting);
void MultiplyTiles(const Meeting& meeting);
void WgmmaIssue(Fiber* self, const Meeting& meeting);
void WgmmaCommit(Fiber* self);
void WgmmaWait(Fiber* self, const Meeting& meeting);

}  // namespace weir::kernels::simt
