// SPDX-License-Identifier: Apache-2.0
//
// What kernels call through device.h: the emulated instructions, each with the line it stands on.
// All run on the fiber of the calling thread and may give its turn away; breaking a rule of the
// hardware is a finding in the launch's report, and the kernel goes on as far as it can.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simt/site.h"
#include "kernels/simt/tensor_map.h"

namespace weir::kernels::simt {

// ---- collectives of a warp: the last lane to arrive acts for all
enum class Collective : uint8_t {
  kSyncWarp,
  kShuffle,
  kBallot,
  kMatch,
  kReduceAdd,
  kReduceMin,
  kReduceMax,
  kLoadMatrix,
  kStoreMatrix,
  kMma,
  kWgmmaFence,
  kWgmma,
  kWgmmaCommit,
  kWgmmaWait,
};

struct VoteLane {  // shuffles, votes and reductions
  uint64_t value = 0;
  int source = 0;  // lane, of a shuffle
  uint64_t result = 0;
};

struct MatrixLane {
  void* row = nullptr;  // of 16 bytes in shared memory
  uint32_t* registers = nullptr;
  int tiles = 4;  // 8 x 8 of 16 bits each
  bool transposed = false;
};

enum class Operand : uint8_t { kBf16, kF16, kE4m3 };

struct MmaLane {  // m16n8k16, k32 of bytes
  Operand operand{};
  const uint32_t* a = nullptr;  // 4
  const uint32_t* b = nullptr;  // 2
  float* c = nullptr;           // 4
};

struct WgmmaShape {
  int n = 0;
  Operand operand{};
  bool a_in_registers = false;
  bool a_transposed = false;  // stored with M, not K, in neighbouring columns
  bool b_transposed = false;  // likewise N
};

struct WgmmaLane {
  WgmmaShape shape;
  uint64_t a = 0;  // descriptor
  uint64_t b = 0;
  const uint32_t* a_registers = nullptr;  // 4
  bool accumulate = true;
  float* c = nullptr;  // n / 2
};

struct WaitLane {
  int groups = 0;  // that may stay open
};

void Meet(Collective what, uint32_t mask, void* lane, Site at);

// ---- barriers
void SyncThreads(Site at);
void BarrierSync(int id, int threads, Site at);
void BarrierArrive(int id, int threads, Site at);

void MbarrierInit(uint64_t* barrier, int arrivals, Site at);
void MbarrierFence(Site at);  // fence.mbarrier_init
void MbarrierArrive(uint64_t* barrier, int64_t expect_bytes, Site at);
void MbarrierWait(uint64_t* barrier, uint32_t parity, Site at);

// ---- asynchronous copies
void CopyAsync(void* to, const void* from, int room, int bytes,
               Site at);  // cp.async with zero fill
void CopyCommit();
void CopyWait(int groups, Site at);
void CopyArrive(uint64_t* barrier, Site at);  // cp.async.mbarrier.arrive.noinc
void BulkLoad(void* to, const void* from, uint32_t bytes, uint64_t* barrier, Site at);
void BulkStore(void* to, const void* from, uint32_t bytes, Site at);
void TensorLoad(void* to, const TensorMap* map, const int* at_element, uint64_t* barrier, Site at);
void TensorStore(const TensorMap* map, const int* at_element, const void* from, Site at);
void StoreCommit();
void StoreWait(int groups, Site at);
void FenceProxy(Site at);

// ---- memory order
enum class Order : uint8_t { kRelaxed, kAcquire, kRelease, kAcquireRelease };
void ThreadFence(Site at);
// `bytes` of 1 to 8, as an unsigned number. A load may give the turn away, so that spinning ends.
uint64_t AtomicLoad(const void* p, size_t bytes, Order order, Site at);
void AtomicStore(void* p, size_t bytes, uint64_t value, Order order, Site at);
// The value before. `update` computes the new one.
uint64_t AtomicUpdate(void* p, size_t bytes, uint64_t (*update)(uint64_t old, const void* context),
                      const void* context, Order order, Site at);

// One access of up to 16 bytes that stays one, as the hardware makes it.
void ReadVector(void* to, const void* from, size_t bytes, Site at);
void WriteVector(void* to, const void* from, size_t bytes, Site at);

uint32_t SharedAddress(const void* p);

}  // namespace weir::kernels::simt
