// SPDX-License-Identifier: Apache-2.0
//
// The emulator's instructions against plain arithmetic, and each kind of finding by a kernel that
// breaks one rule.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/stdx/random.h"
#include "kernels/simt/launch.h"
// Last: it defines macros.
#include "kernels/simt/device.h"

namespace weir::kernels::simt {
namespace {

using dev::Major;
using dev::SharedMemory;

Shape OneBlock(unsigned threads, size_t shared = 0) { return {dim3(1), dim3(threads), shared}; }

float Uniform(uint64_t seed, uint64_t i) {
  return static_cast<float>(RandomUnit(seed, 0, i) * 2 - 1);
}

TEST(Simt, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> seen(3 * 2 * 40);
  const Report report = Launch(
      {}, {dim3(3, 2), dim3(8, 5)},
      [](int* out) {
        const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
        out[block * 40 + threadIdx.y * blockDim.x + threadIdx.x] += 1;
      },
      seen.data());
  EXPECT_TRUE(report.clean()) << report.Text();
  for (const int count : seen) EXPECT_EQ(count, 1);
}

TEST(Simt, WarpVotesAndShuffles) {
  std::vector<uint32_t> out(8 * 32);
  const Report report = Launch(
      {}, OneBlock(32),
      [](uint32_t* to) {
        const auto lane = threadIdx.x;
        to[lane] = __shfl_xor_sync(~0u, lane, 5);
        to[32 + lane] = __shfl_down_sync(~0u, lane, 3, 8);
        to[64 + lane] = __shfl_up_sync(~0u, lane, 3, 8);
        to[96 + lane] = __shfl_sync(~0u, lane, 9, 16);
        to[128 + lane] = __ballot_sync(~0u, lane % 3 == 0);
        to[160 + lane] = __match_any_sync(~0u, lane / 10);
        to[192 + lane] = __reduce_add_sync(~0u, lane);
        if (lane < 16) to[224 + lane] = __reduce_max_sync(0xffff, lane);
      },
      out.data());
  EXPECT_TRUE(report.clean()) << report.Text();
  uint32_t thirds = 0;
  for (uint32_t lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], lane ^ 5);
    EXPECT_EQ(out[32 + lane], lane % 8 + 3 < 8 ? lane + 3 : lane);
    EXPECT_EQ(out[64 + lane], lane % 8 >= 3 ? lane - 3 : lane);
    EXPECT_EQ(out[96 + lane], lane / 16 * 16 + 9);
    EXPECT_EQ(out[128 + lane], thirds);
    EXPECT_EQ(out[160 + lane], lane < 10   ? 0x3ffu
                               : lane < 20 ? 0x3ffu << 10
                               : lane < 30 ? 0x3ffu << 20
                                           : 3u << 30);
    EXPECT_EQ(out[192 + lane], 496u);
    EXPECT_EQ(out[224 + lane], lane < 16 ? 15u : 0u);
  }
  EXPECT_EQ(report.counters.of(Instruction::kShuffle), 4u);
}

// One warp, D[16, 8] = A[16, K] B[8, K]^T, fragments straight from memory.
template <Operand kOperand, class T>
void MmaTile(const T* a, const T* b, float* d) {
  constexpr int kPer = 4 / sizeof(T);
  const unsigned row = threadIdx.x / 4;
  const unsigned column = threadIdx.x % 4 * kPer;
  const auto word = [&](const T* m, unsigned r, unsigned c) {
    uint32_t bits;
    std::memcpy(&bits, m + r * 8 * kPer + c, 4);
    return bits;
  };
  const uint32_t fragment[4] = {word(a, row, column), word(a, row + 8, column),
                                word(a, row, column + 4 * kPer),
                                word(a, row + 8, column + 4 * kPer)};
  float c[4] = {};
  dev::Mma<kOperand>(c, fragment, word(b, row, column), word(b, row, column + 4 * kPer));
  for (unsigned e = 0; e < 4; ++e) {
    d[(row + e / 2 * 8) * 8 + threadIdx.x % 4 * 2 + e % 2] = c[e];
  }
}

template <Operand kOperand, class T, class Encode, class Decode>
void CheckMma(Encode encode, Decode decode) {
  constexpr size_t kDepth = 32 / sizeof(T);
  std::vector<T> a(16 * kDepth);
  std::vector<T> b(8 * kDepth);
  for (size_t i = 0; i < a.size(); ++i) a[i] = encode(Uniform(1, i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = encode(Uniform(2, i));
  std::vector<float> d(128);
  const Report report =
      Launch({}, OneBlock(32), MmaTile<kOperand, T>, a.data(), b.data(), d.data());
  EXPECT_TRUE(report.clean()) << report.Text();
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double sum = 0;
      for (size_t k = 0; k < kDepth; ++k) {
        sum += double{decode(a[i * kDepth + k])} * decode(b[j * kDepth + k]);
      }
      EXPECT_NEAR(d[i * 8 + j], sum, 1e-5);
    }
  }
}

TEST(Simt, MmaOfEveryOperand) {
  CheckMma<Operand::kBf16, uint16_t>(ToBf16, FromBf16);
  CheckMma<Operand::kF16, uint16_t>(ToF16, FromF16);
  CheckMma<Operand::kE4m3, uint8_t>(ToE4m3, FromE4m3);
}

struct MatrixShared {
  uint16_t tile[16][24];  // rows of 48 bytes: no bank conflicts
  uint16_t back[16][24];
};

TEST(Simt, MatrixLoadsAndStores) {
  std::vector<uint16_t> out(2 * 256);
  const Report report = Launch(
      {}, OneBlock(32, sizeof(MatrixShared)),
      [](uint16_t* to) {
        auto& s = SharedMemory<MatrixShared>();
        const unsigned lane = threadIdx.x;
        for (unsigned i = lane; i < 256; i += 32) s.tile[i / 16][i % 16] = static_cast<uint16_t>(i);
        __syncwarp();
        uint32_t plain[4];
        uint32_t turned[4];
        dev::LoadMatrix(plain, &s.tile[lane % 16][lane / 16 * 8]);
        dev::LoadMatrixTransposed(turned, &s.tile[lane % 16][lane / 16 * 8]);
        dev::StoreMatrix(&s.back[lane % 16][lane / 16 * 8], plain);
        __syncwarp();
        for (unsigned i = lane; i < 256; i += 32) to[i] = s.back[i / 16][i % 16];
        __syncwarp();
        dev::StoreMatrixTransposed(&s.back[lane % 16][lane / 16 * 8], turned);
        __syncwarp();
        for (unsigned i = lane; i < 256; i += 32) to[256 + i] = s.back[i / 16][i % 16];
      },
      out.data());
  EXPECT_TRUE(report.clean()) << report.Text();
  for (size_t i = 0; i < 512; ++i) EXPECT_EQ(out[i], i % 256);
  EXPECT_EQ(report.counters.BankConflictFactor(), 1.0);
}

TEST(Simt, BankConflictsOfMatrixRowsAreCounted) {
  struct Unpadded {
    uint16_t tile[16][64];  // rows of 128 bytes: eight of them meet in the same banks
  };
  const Report report = Launch({}, OneBlock(32, sizeof(Unpadded)), [] {
    auto& s = SharedMemory<Unpadded>();
    for (unsigned i = threadIdx.x; i < 1024; i += 32) s.tile[i / 64][i % 64] = 0;
    __syncwarp();
    uint32_t r[4];
    dev::LoadMatrix(r, &s.tile[threadIdx.x % 16][threadIdx.x / 16 * 8]);
  });
  EXPECT_TRUE(report.clean()) << report.Text();
  EXPECT_EQ(report.counters.BankConflictFactor(), 8.0);
}

TEST(Simt, CoalescingIsCounted) {
  DeviceMemory memory(1 << 20);
  auto* x = static_cast<float*>(memory.Allocate(4096));
  std::vector<float> zeros(1024);
  memory.CopyIn(x, zeros.data(), 4096);
  Options options;
  options.memory = &memory;
  options.count = true;
  const auto stride_of = [&](int stride) {
    return Launch(
               options, OneBlock(32),
               [](float* p, int step) { p[threadIdx.x * static_cast<unsigned>(step)] += 1; }, x,
               stride)
        .counters;
  };
  EXPECT_EQ(stride_of(1).UncoalescedShare(), 0);
  EXPECT_EQ(stride_of(1).global_read_bytes, 128u);
  EXPECT_EQ(stride_of(1).global_written_bytes, 128u);
  EXPECT_EQ(stride_of(8).UncoalescedShare(), 0.875);
}

// ---- findings

struct Words {
  int word[256];
};

template <class Kernel>
Report Broken(unsigned threads, Kernel kernel, uint64_t seed = 0) {
  Options options;
  options.seed = seed;
  return Launch(options, OneBlock(threads, sizeof(Words)), kernel);
}

TEST(SimtFindings, RaceNamesTheLine) {
  const Report report = Broken(64, [] {
    auto& s = SharedMemory<Words>();
    s.word[threadIdx.x] = 1;
    s.word[threadIdx.x ^ 32] += 1;
  });
  EXPECT_TRUE(report.Has(FindingKind::kRace)) << report.Text();
  EXPECT_NE(report.Text().find("simt_test.cc:"), std::string::npos) << report.Text();
}

TEST(SimtFindings, BarrierAndSyncWarpOrder) {
  const Report report = Broken(
      64,
      [] {
        auto& s = SharedMemory<Words>();
        s.word[threadIdx.x] = 1;
        __syncthreads();
        s.word[threadIdx.x ^ 32] += 1;
        __syncthreads();
        s.word[threadIdx.x] += 1;
        __syncwarp();
        s.word[threadIdx.x ^ 1] += 1;
      },
      3);
  EXPECT_TRUE(report.clean()) << report.Text();
}

TEST(SimtFindings, ShufflesOrderNothing) {
  const Report report = Broken(32, [] {
    auto& s = SharedMemory<Words>();
    s.word[threadIdx.x] = 1;
    __shfl_sync(~0u, 1, 0);
    s.word[threadIdx.x ^ 1] += 1;
  });
  EXPECT_TRUE(report.Has(FindingKind::kRace)) << report.Text();
}

TEST(SimtFindings, UninitialisedAndOutOfBounds) {
  const Report unwritten = Broken(32, [] {
    auto& s = SharedMemory<Words>();
    if (s.word[threadIdx.x] == 7) s.word[0] = 1;
  });
  EXPECT_TRUE(unwritten.Has(FindingKind::kUninitialised)) << unwritten.Text();
  const Report outside = Broken(32, [] { SharedMemory<Words>().word[threadIdx.x + 240] = 1; });
  EXPECT_TRUE(outside.Has(FindingKind::kOutOfBounds)) << outside.Text();
}

TEST(SimtFindings, GlobalMemoryHasTheSameRules) {
  DeviceMemory memory(1 << 20);
  auto* x = static_cast<int*>(memory.Allocate(64 * 4));
  Options options;
  options.memory = &memory;
  const auto run = [&](void (*kernel)(int*), unsigned blocks) {
    return Launch(options, {dim3(blocks), dim3(32)}, kernel, x);
  };
  EXPECT_TRUE(run([](int* p) { p[threadIdx.x + 64] = p[threadIdx.x]; }, 1)
                  .Has(FindingKind::kUninitialised));
  EXPECT_TRUE(run([](int* p) { p[threadIdx.x + 33] = 1; }, 1).Has(FindingKind::kOutOfBounds));
  EXPECT_TRUE(run([](int* p) { p[threadIdx.x] = 1; }, 2).Has(FindingKind::kRace));
  EXPECT_TRUE(run([](int* p) { p[blockIdx.x * 32 + threadIdx.x] = 1; }, 2).clean());
  EXPECT_EQ(memory.Unwritten(x, 256), 0u);
  memory.Free(x);
  EXPECT_TRUE(run([](int* p) { p[0] = 1; }, 1).Has(FindingKind::kOutOfBounds));
}

TEST(SimtFindings, MisalignedVector) {
  const Report report = Broken(32, [] {
    auto& s = SharedMemory<Words>();
    auto* v = reinterpret_cast<uint4*>(&s.word[threadIdx.x * 4 + 1]);
    if (threadIdx.x < 8) dev::Store(v, make_uint4(1, 2, 3, 4));
  });
  EXPECT_TRUE(report.Has(FindingKind::kMisaligned)) << report.Text();
}

TEST(SimtFindings, DivergentCollectives) {
  const Report places = Broken(32, [] {
    if (threadIdx.x < 16) {
      __shfl_sync(~0u, 1, 0);
    } else {
      __shfl_sync(~0u, 1, 0);
    }
  });
  EXPECT_TRUE(places.Has(FindingKind::kDivergent)) << places.Text();
  const Report absent = Broken(32, [] {
    if (threadIdx.x < 16) __shfl_sync(0xffffu, 1, 20);
  });
  EXPECT_TRUE(absent.Has(FindingKind::kDivergent)) << absent.Text();
}

TEST(SimtFindings, DeadlockEndsTheLaunch) {
  const Report lanes = Broken(32, [] {
    if (threadIdx.x < 16) __syncwarp();
  });
  EXPECT_TRUE(lanes.Has(FindingKind::kDeadlock)) << lanes.Text();
  const Report spin = Broken(64, [] {
    auto& s = SharedMemory<Words>();
    s.word[0] = 0;
    while (dev::LoadAcquire(&s.word[0]) != 1) {
    }
  });
  EXPECT_TRUE(spin.Has(FindingKind::kDeadlock)) << spin.Text();
}

TEST(Simt, NamedBarriersOrderTheirMembers) {
  const auto kernel = [](bool wait) {
    auto& s = SharedMemory<Words>();
    if (threadIdx.x < 32) {
      s.word[threadIdx.x] = 5;
      dev::BarrierArrive(3, 64);
    } else if (threadIdx.x < 64) {
      if (wait) dev::BarrierSync(3, 64);
      s.word[threadIdx.x] = s.word[threadIdx.x - 32];
    }
  };
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Options options;
    options.seed = seed;
    const Shape shape = OneBlock(96, sizeof(Words));
    const Report good = Launch(options, shape, kernel, true);
    EXPECT_TRUE(good.clean()) << good.Text();
    EXPECT_FALSE(Launch(options, shape, kernel, false).clean());
  }
}

// The last block to arrive sums what the others left: the pattern of split reductions.
template <bool kFence>
void LastBlockSums(int* part, int* arrived, int* sum) {
  part[blockIdx.x * 32 + threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  auto& s = SharedMemory<Words>();
  if (threadIdx.x == 0) {
    if (kFence) __threadfence();
    s.word[0] = atomicAdd(arrived, 1);
    __threadfence();
  }
  __syncthreads();
  if (s.word[0] != static_cast<int>(gridDim.x) - 1) return;
  int total = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) total += part[b * 32 + threadIdx.x];
  sum[threadIdx.x] = total;
}

TEST(Simt, FencesOrderBlocks) {
  DeviceMemory memory(1 << 20);
  auto* part = static_cast<int*>(memory.Allocate(4 * 32 * 4));
  auto* arrived = static_cast<int*>(memory.Allocate(4));
  auto* sum = static_cast<int*>(memory.Allocate(32 * 4));
  Options options;
  options.memory = &memory;
  for (const bool together : {false, true}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      options.seed = seed;
      const int zero = 0;
      memory.CopyIn(arrived, &zero, 4);
      const Shape shape{dim3(4), dim3(32), sizeof(Words), together};
      const Report report = Launch(options, shape, LastBlockSums<true>, part, arrived, sum);
      EXPECT_TRUE(report.clean()) << report.Text();
      for (int i = 0; i < 32; ++i) EXPECT_EQ(sum[i], 4 * i);
      memory.CopyIn(arrived, &zero, 4);
      EXPECT_TRUE(
          Launch(options, shape, LastBlockSums<false>, part, arrived, sum).Has(FindingKind::kRace));
    }
  }
}

TEST(Simt, BlocksThatWaitForEachOtherRunTogether) {
  DeviceMemory memory(1 << 20);
  auto* flag = static_cast<int*>(memory.Allocate(4 * 4));
  auto* data = static_cast<int*>(memory.Allocate(4 * 4));
  const int zeros[4] = {};
  memory.CopyIn(flag, zeros, 16);
  Options options;
  options.memory = &memory;
  // Each block adds to what its left neighbour made.
  const Report report = Launch(
      options, {dim3(4), dim3(32), 0, true},
      [](int* f, int* d) {
        const unsigned b = 3 - blockIdx.x;  // the last to start is the first to be done
        if (threadIdx.x != 0) return;
        if (b > 0) {
          while (dev::LoadAcquire(&f[b - 1]) == 0) {
          }
        }
        d[b] = b == 0 ? 1 : d[b - 1] + 1;
        dev::StoreRelease(&f[b], 1);
      },
      flag, data);
  EXPECT_TRUE(report.clean()) << report.Text();
  EXPECT_EQ(data[3], 4);
}

TEST(Simt, NumbersRoundTrip) {
  for (int code = 0; code < 256; ++code) {
    const float value = FromE4m3(static_cast<uint8_t>(code));
    if (!std::isnan(value)) {
      EXPECT_EQ(ToE4m3(value), code);
    }
  }
  for (int code = 0; code < 65536; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    const float half = FromF16(bits);
    const float brain = FromBf16(bits);
    EXPECT_TRUE(std::isnan(half) || ToF16(half) == bits) << code;
    EXPECT_TRUE(std::isnan(brain) || ToBf16(brain) == bits) << code;
  }
  EXPECT_EQ(ToE4m3(1e9f), 0x7e);
}

}  // namespace
}  // namespace weir::kernels::simt
