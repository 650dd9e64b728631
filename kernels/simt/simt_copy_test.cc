// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous copies and wgmma by small matrix products in the shapes of real kernels, and the
// test of the checker itself: every synchronisation in them is left out once, at every place, and
// found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/stdx/random.h"
#include "kernels/simt/launch.h"
// Last: it defines macros.
#include "kernels/simt/device.h"

namespace weir::kernels::simt {
namespace {

using dev::Major;
using dev::SharedMemory;

// The matrices of C[m, n] = A[m, k] B[n, k]^T in an arena of their own. B lies with k innermost, or
// with n.
template <class T>
struct Problem {
  int m, n, k;
  DeviceMemory memory{size_t{8} << 20};
  T* a = nullptr;
  T* b = nullptr;
  float* c = nullptr;
  std::vector<double> want;

  Problem(int m_in, int n_in, int k_in, T (*encode)(float), float (*decode)(T),
          bool b_outer = false)
      : m(m_in), n(n_in), k(k_in) {
    const auto fill = [&](int rows, uint64_t seed, std::vector<T>* codes) {
      for (int i = 0; i < rows * k; ++i) {
        codes->push_back(
            encode(static_cast<float>(RandomUnit(seed, 0, static_cast<uint64_t>(i)) * 2 - 1)));
      }
    };
    std::vector<T> a_codes;
    std::vector<T> b_codes;
    fill(m, 1, &a_codes);
    fill(n, 2, &b_codes);
    const auto b_at = [&](int j, int l) {
      return static_cast<size_t>(b_outer ? l * n + j : j * k + l);
    };
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int l = 0; l < k; ++l) {
          sum +=
              double{decode(a_codes[static_cast<size_t>(i * k + l)])} * decode(b_codes[b_at(j, l)]);
        }
        want.push_back(sum);
      }
    }
    a = Take(a_codes);
    b = Take(b_codes);
    c = static_cast<float*>(memory.Allocate(want.size() * sizeof(float)));
  }

  T* Take(const std::vector<T>& codes) {
    auto* at = static_cast<T*>(memory.Allocate(codes.size() * sizeof(T)));
    memory.CopyIn(at, codes.data(), codes.size() * sizeof(T));
    return at;
  }
  double Error() const {
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = std::fabs(c[i] - want[i]);
      worst = error <= worst ? worst : error;  // NaN counts
    }
    return worst;
  }
};

constexpr double kTolerance = 1e-3;

TensorMap RowsOf(const void* base, int rows, int columns, int bytes, int box_rows, int box_columns,
                 Swizzle swizzle) {
  const auto width = static_cast<uint64_t>(columns);
  return MakeTensorMap<2>(const_cast<void*>(base), bytes, swizzle,
                          {width, static_cast<uint64_t>(rows)},
                          {static_cast<uint64_t>(bytes), width * static_cast<uint64_t>(bytes)},
                          {static_cast<uint32_t>(box_columns), static_cast<uint32_t>(box_rows)});
}

// ---- cp.async, ldmatrix, mma: a block makes 64 x 64 with four warps of 32 x 32

constexpr int kStages = 3;

struct RingShared {
  uint16_t a[kStages][64][40];  // 32 columns and padding against bank conflicts
  uint16_t b[kStages][64][40];
};

void RingProduct(const uint16_t* a, const uint16_t* b, float* c, int n, int k) {
  auto& s = SharedMemory<RingShared>();
  const int t = static_cast<int>(threadIdx.x);
  const int lane = t % 32;
  const int m0 = t / 32 % 2 * 32;
  const int n0 = t / 64 * 32;
  const auto load = [&](int tile) {
    for (int i = t; i < 64 * 4; i += 128) {
      const int row = i / 4;
      const int column = i % 4 * 8;
      const int stage = tile % kStages;
      dev::CopyAsync(&s.a[stage][row][column],
                     a + (static_cast<int>(blockIdx.y) * 64 + row) * k + tile * 32 + column);
      dev::CopyAsync(&s.b[stage][row][column],
                     b + (static_cast<int>(blockIdx.x) * 64 + row) * k + tile * 32 + column);
    }
  };
  float sum[2][4][4] = {};
  for (int tile = 0; tile < kStages - 1; ++tile) {
    load(tile);
    dev::CopyCommit();
  }
  for (int tile = 0; tile < k / 32; ++tile) {
    dev::CopyWait<kStages - 2>();
    __syncthreads();
    if (tile + kStages - 1 < k / 32) load(tile + kStages - 1);
    dev::CopyCommit();
    const int stage = tile % kStages;
    for (int kk = 0; kk < 32; kk += 16) {
      uint32_t fa[2][4];
      uint32_t fb[2][4];
      for (int i = 0; i < 2; ++i) {
        dev::LoadMatrix(fa[i], &s.a[stage][m0 + i * 16 + lane % 16][kk + lane / 16 * 8]);
        dev::LoadMatrix(fb[i],
                        &s.b[stage][n0 + i * 16 + lane % 8 + lane / 16 * 8][kk + lane / 8 % 2 * 8]);
      }
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 4; ++j) {
          dev::Mma<Operand::kBf16>(sum[i][j], fa[i], fb[j / 2][j % 2 * 2],
                                   fb[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int h = 0; h < 2; ++h) {
        const int row = static_cast<int>(blockIdx.y) * 64 + m0 + i * 16 + h * 8 + lane / 4;
        const int column = static_cast<int>(blockIdx.x) * 64 + n0 + j * 8 + lane % 4 * 2;
        dev::Store(reinterpret_cast<float2*>(c + row * n + column),
                   make_float2(sum[i][j][h * 2], sum[i][j][h * 2 + 1]));
      }
    }
  }
}

// ---- tensor maps, mbarriers, wgmma: a producer warp feeds a warpgroup that makes 64 x kN and
// leaves it by a tensor store

template <class T, int kN>
struct FedShared {
  T a[2][64 * 128 / sizeof(T)];  // rows of 128 bytes, swizzled
  T b[2][kN * 128 / sizeof(T)];
  float c[64 * kN];
  uint64_t full[2];
  uint64_t empty[2];
};

struct Maps {
  TensorMap a;
  TensorMap b;
  TensorMap c;
};

template <Operand kOperand, class T, int kN, Major kB>
void FedProduct(const Maps maps, int k) {
  constexpr int kDepth = 128 / sizeof(T);  // of a stage
  constexpr int kStep = 32 / sizeof(T);    // of a wgmma
  auto& s = SharedMemory<FedShared<T, kN>>();
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) {
    for (int i = 0; i < 2; ++i) {
      dev::MbarrierInit(&s.full[i], 1);
      dev::MbarrierInit(&s.empty[i], 128);
    }
    dev::MbarrierFence();
  }
  __syncthreads();
  if (t >= 128) {
    if (t != 128) return;
    for (int tile = 0; tile < k / kDepth; ++tile) {
      const int stage = tile % 2;
      const uint32_t round = static_cast<uint32_t>(tile / 2);
      dev::MbarrierWait(&s.empty[stage], (round & 1) ^ 1);
      dev::MbarrierExpect(&s.full[stage], (64 + kN) * 128);
      dev::TensorLoad(s.a[stage], maps.a, {tile * kDepth, 0}, &s.full[stage]);
      if (kB == Major::kK) {
        dev::TensorLoad(s.b[stage], maps.b, {tile * kDepth, 0}, &s.full[stage]);
      } else {
        for (int n = 0; n < kN; n += 64) {
          dev::TensorLoad(s.b[stage] + n * kDepth, maps.b, {n, tile * kDepth}, &s.full[stage]);
        }
      }
    }
    return;
  }
  float sum[kN / 2] = {};
  for (int tile = 0; tile < k / kDepth; ++tile) {
    const int stage = tile % 2;
    dev::MbarrierWait(&s.full[stage], static_cast<uint32_t>(tile / 2) & 1);
    dev::WgmmaFence();
    for (int kk = 0; kk < kDepth; kk += kStep) {
      const uint64_t a = dev::MatrixDescriptor(s.a[stage] + kk, Swizzle::k128, 0, 1024);
      const uint64_t b =
          kB == Major::kK
              ? dev::MatrixDescriptor(s.b[stage] + kk, Swizzle::k128, 0, 1024)
              : dev::MatrixDescriptor(s.b[stage] + kk * 64, Swizzle::k128, kDepth * 128, 1024);
      dev::Wgmma<kOperand, kN, Major::kK, kB>(sum, a, b, true);
    }
    dev::WgmmaCommit();
    dev::WgmmaWait<0>();
    dev::MbarrierArrive(&s.empty[stage]);
  }
  for (int i = 0; i < kN / 2; ++i) {
    const int row = t / 32 * 16 + i / 2 % 2 * 8 + t % 32 / 4;
    s.c[row * kN + i / 4 * 8 + t % 4 * 2 + i % 2] = sum[i];
  }
  dev::FenceProxy();
  dev::BarrierSync(1, 128);
  if (t == 0) {
    dev::TensorStore(maps.c, {0, 0}, s.c);
    dev::StoreCommit();
    dev::StoreWait<0>();
  }
}

template <Operand kOperand, class T, int kN, Major kB = Major::kK>
Report RunFed(Problem<T>* p, Options options = {}) {
  constexpr int kDepth = 128 / sizeof(T);
  options.memory = &p->memory;
  Maps maps;
  maps.a = RowsOf(p->a, 64, p->k, sizeof(T), 64, kDepth, Swizzle::k128);
  maps.b = kB == Major::kK ? RowsOf(p->b, kN, p->k, sizeof(T), kN, kDepth, Swizzle::k128)
                           : RowsOf(p->b, p->k, kN, sizeof(T), kDepth, 64, Swizzle::k128);
  maps.c = RowsOf(p->c, 64, kN, 4, 64, kN, Swizzle::kNone);
  return Launch(options, {dim3(1), dim3(160), sizeof(FedShared<T, kN>)},
                FedProduct<kOperand, T, kN, kB>, maps, p->k);
}

TEST(SimtCopy, RingOfCopiesFeedsMma) {
  Problem<uint16_t> p(128, 64, 160, ToBf16, FromBf16);
  Options options;
  options.memory = &p.memory;
  options.count = true;
  const Report report =
      Launch(options, {dim3(1, 2), dim3(128), sizeof(RingShared)}, RingProduct,
             static_cast<const uint16_t*>(p.a), static_cast<const uint16_t*>(p.b), p.c, p.n, p.k);
  EXPECT_TRUE(report.clean()) << report.Text();
  EXPECT_LT(p.Error(), kTolerance);
  EXPECT_EQ(report.counters.BankConflictFactor(), 1.0);
  EXPECT_EQ(report.counters.UncoalescedShare(), 0.0);
  // A once, B once a row of blocks.
  EXPECT_EQ(report.counters.global_read_bytes, (128 + 2 * 64) * 160 * 2u);
  EXPECT_EQ(report.counters.of(Instruction::kMma), 2u * 4 * 5 * 2 * 8);
}

TEST(SimtCopy, TensorMapsFeedWgmmaOfEveryOperand) {
  Problem<uint16_t> bf16(64, 128, 256, ToBf16, FromBf16);
  const Report one = RunFed<Operand::kBf16, uint16_t, 128>(&bf16);
  EXPECT_TRUE(one.clean()) << one.Text();
  EXPECT_LT(bf16.Error(), kTolerance);
  Problem<uint16_t> f16(64, 64, 192, ToF16, FromF16);
  const Report two = RunFed<Operand::kF16, uint16_t, 64>(&f16);
  EXPECT_TRUE(two.clean()) << two.Text();
  EXPECT_LT(f16.Error(), kTolerance);
  Problem<uint8_t> e4m3(64, 32, 512, ToE4m3, FromE4m3);
  const Report three = RunFed<Operand::kE4m3, uint8_t, 32>(&e4m3);
  EXPECT_TRUE(three.clean()) << three.Text();
  EXPECT_LT(e4m3.Error(), kTolerance);
  Problem<uint16_t> outer(64, 128, 256, ToBf16, FromBf16, /*b_outer=*/true);
  const Report four = RunFed<Operand::kBf16, uint16_t, 128, Major::kOuter>(&outer);
  EXPECT_TRUE(four.clean()) << four.Text();
  EXPECT_LT(outer.Error(), kTolerance);
}

// A from registers, B without a swizzle.
void RegisterProduct(const uint16_t* a, const uint16_t* b, float* c) {
  struct Shared {
    uint16_t b[2][8][8];  // core matrices of 8 rows by 16 bytes, along K
  };
  auto& s = SharedMemory<Shared>();
  const int t = static_cast<int>(threadIdx.x);
  s.b[t % 16 / 8][t / 16][t % 8] = b[t];
  dev::FenceProxy();
  __syncthreads();
  const int row = t / 32 * 16 + t % 32 / 4;
  const auto word = [&](int r, int column) {
    return a[r * 16 + column] | static_cast<uint32_t>(a[r * 16 + column + 1]) << 16;
  };
  const int column = t % 4 * 2;
  const uint32_t fragment[4] = {word(row, column), word(row + 8, column), word(row, column + 8),
                                word(row + 8, column + 8)};
  float sum[4];
  dev::WgmmaFence();
  dev::Wgmma<Operand::kBf16, 8>(sum, fragment, dev::MatrixDescriptor(s.b, Swizzle::kNone, 128, 256),
                                false);
  dev::WgmmaCommit();
  dev::WgmmaWait<0>();
  for (int i = 0; i < 4; ++i) c[(row + i / 2 * 8) * 8 + column + i % 2] = sum[i];
}

TEST(SimtCopy, WgmmaTakesRegistersAndPlainTiles) {
  Problem<uint16_t> p(64, 8, 16, ToBf16, FromBf16);
  Options options;
  options.memory = &p.memory;
  const Report report =
      Launch(options, {dim3(1), dim3(128), 256}, RegisterProduct, static_cast<const uint16_t*>(p.a),
             static_cast<const uint16_t*>(p.b), p.c);
  EXPECT_TRUE(report.clean()) << report.Text();
  EXPECT_LT(p.Error(), kTolerance);
}

TEST(SimtCopy, AccumulatorsReadAsNanUntilTheWait) {
  Problem<uint16_t> p(64, 8, 16, ToBf16, FromBf16);
  Options options;
  options.memory = &p.memory;
  options.sabotage = Sabotage::kSkipWgmmaWait;
  const Report report =
      Launch(options, {dim3(1), dim3(128), 256}, RegisterProduct, static_cast<const uint16_t*>(p.a),
             static_cast<const uint16_t*>(p.b), p.c);
  EXPECT_TRUE(report.Has(FindingKind::kMisuse)) << report.Text();
  EXPECT_TRUE(std::isnan(p.Error()));
}

TEST(SimtCopy, BoxesSwizzleAndFillWithZeros) {
  DeviceMemory memory(1 << 20);
  auto* x = static_cast<int32_t*>(memory.Allocate(20 * 40 * 4));
  std::vector<int32_t> values(20 * 40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i) + 1;
  memory.CopyIn(x, values.data(), values.size() * 4);
  auto* out = static_cast<int32_t*>(memory.Allocate(16 * 32 * 4));
  Options options;
  options.memory = &memory;
  struct Shared {
    int32_t box[16 * 32];
    uint64_t full;
  };
  const auto kernel = [](const TensorMap map, int row, int column, int32_t* to) {
    auto& s = SharedMemory<Shared>();
    if (threadIdx.x == 0) {
      dev::MbarrierInit(&s.full, 1);
      dev::MbarrierFence();
      dev::MbarrierExpect(&s.full, BoxBytes(map));
      dev::TensorLoad(s.box, map, {column, row}, &s.full);
    }
    __syncthreads();
    dev::MbarrierWait(&s.full, 0);
    for (unsigned i = threadIdx.x; i < BoxBytes(map) / 4; i += 32) to[i] = s.box[i];
  };
  for (const Swizzle swizzle : {Swizzle::kNone, Swizzle::k32, Swizzle::k64, Swizzle::k128}) {
    const int columns = swizzle == Swizzle::kNone ? 32 : 4 << static_cast<int>(swizzle);
    const TensorMap map = RowsOf(x, 20, 40, 4, 16, columns, swizzle);
    for (const auto& [row, column] : {std::pair{0, 0}, std::pair{12, 36}, std::pair{-3, -4}}) {
      const Report report =
          Launch(options, {dim3(1), dim3(32), sizeof(Shared)}, kernel, map, row, column, out);
      EXPECT_TRUE(report.clean()) << report.Text();
      for (int i = 0; i < 16 * columns; ++i) {
        const int r = row + i / columns;
        const int c = column + i % columns;
        const bool inside = r >= 0 && r < 20 && c >= 0 && c < 40;
        const uint32_t at = SwizzleOffset(swizzle, static_cast<uint32_t>(i * 4)) / 4;
        ASSERT_EQ(out[at], inside ? r * 40 + c + 1 : 0) << row << " " << column << " " << i;
      }
    }
  }
}

TEST(SimtCopy, WhatNobodyWroteStaysUnwrittenWhenCopied) {
  DeviceMemory memory(1 << 20);
  auto* x = static_cast<int32_t*>(memory.Allocate(128));
  const int32_t half[16] = {};
  memory.CopyIn(x, half, sizeof(half));
  Options options;
  options.memory = &memory;
  const auto run = [&](unsigned lanes) {
    return Launch(
        options, {dim3(1), dim3(32), 128},
        [](const int32_t* from, unsigned read) {
          auto& s = SharedMemory<int32_t[32]>();
          dev::CopyAsync<4>(&s[threadIdx.x], from + threadIdx.x);
          dev::CopyCommit();
          dev::CopyWait<0>();
          if (threadIdx.x < read && s[threadIdx.x] != 0) s[threadIdx.x] = 1;
        },
        static_cast<const int32_t*>(x), lanes);
  };
  EXPECT_TRUE(run(16).clean()) << run(16).Text();
  EXPECT_TRUE(run(17).Has(FindingKind::kUninitialised));
}

// A loader warp gathers rows with cp.async and lets an mbarrier count them; the others send them
// out again in bulk.
struct GatherShared {
  int32_t row[2][32];
  uint64_t full[2];
};
void Gather(const int32_t* x, const int32_t* index, int32_t* out, int count) {
  auto& s = SharedMemory<GatherShared>();
  if (threadIdx.x == 0) {
    for (uint64_t& full : s.full) dev::MbarrierInit(&full, 32);
  }
  __syncthreads();
  for (int i = 0; i < count; ++i) {
    if (threadIdx.x < 32) {
      dev::CopyAsync<4>(&s.row[i % 2][threadIdx.x], x + index[i] * 32 + threadIdx.x);
      dev::CopyArrive(&s.full[i % 2]);
    } else if (threadIdx.x == 32) {
      dev::MbarrierWait(&s.full[i % 2], static_cast<uint32_t>(i / 2) & 1);
      dev::FenceProxy();
      dev::BulkStore(out + i * 32, s.row[i % 2], 128);
      dev::StoreCommit();
      dev::StoreWait<0>();
    }
    __syncthreads();
  }
}

struct GatherProblem {
  DeviceMemory memory{1 << 20};
  int32_t* x = Put(64 * 32, 1);
  int32_t* index = Put(5, 7);
  int32_t* out = static_cast<int32_t*>(memory.Allocate(5 * 128));

  int32_t* Put(int count, int step) {
    std::vector<int32_t> values;
    for (int i = 0; i < count; ++i) values.push_back(i * step);
    auto* at = static_cast<int32_t*>(memory.Allocate(values.size() * 4));
    memory.CopyIn(at, values.data(), values.size() * 4);
    return at;
  }
  Report Run(Options options) {
    options.memory = &memory;
    return Launch(options, {dim3(1), dim3(64), sizeof(GatherShared)}, Gather,
                  static_cast<const int32_t*>(x), static_cast<const int32_t*>(index), out, 5);
  }
  bool Right() const {
    for (int i = 0; i < 160; ++i) {
      if (out[i] != i / 32 * 7 * 32 + i % 32) return false;
    }
    return true;
  }
};

TEST(SimtCopy, MbarriersCountGathersAndStoresGoOut) {
  GatherProblem p;
  const Report report = p.Run({});
  EXPECT_TRUE(report.clean()) << report.Text();
  EXPECT_TRUE(p.Right());
}

struct AloneShared {
  int32_t row[8][32];
  uint64_t full;
};
// What a thread waits for lands while it parks, and nobody else can run.
void SumAlone(const int32_t* x, int32_t* out) {
  auto& s = SharedMemory<AloneShared>();
  dev::MbarrierInit(&s.full, 1);
  dev::FenceProxy();
  int32_t sum = 0;
  for (int i = 0; i < 8; ++i) {
    dev::MbarrierExpect(&s.full, 128);
    dev::BulkLoad(s.row[i], x + i * 32, 128, &s.full);
    dev::MbarrierWait(&s.full, static_cast<uint32_t>(i) & 1);
    sum += s.row[i][31];
  }
  *out += sum;
}

TEST(SimtCopy, AThreadGoesOnWhereItParkedThoughItIsAlone) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    GatherProblem p;
    const int32_t none = 0;
    p.memory.CopyIn(p.out, &none, sizeof(none));
    Options options;
    options.seed = seed;
    options.memory = &p.memory;
    const Report report = Launch(options, {dim3(1), dim3(1), sizeof(AloneShared)}, SumAlone,
                                 static_cast<const int32_t*>(p.x), p.out);
    EXPECT_TRUE(report.clean()) << report.Text();
    EXPECT_EQ(*p.out, 31 * 8 + 32 * 28);
  }
}

// ---- the checker against left-out synchronisation

// Runs with every place of every sabotage; answers how many there are, and names those unnoticed.
int SabotageEverywhere(const char* name, const std::function<Report(const Options&)>& run) {
  int places = 0;
  for (int kind = 1; kind < kSabotages; ++kind) {
    int count = 1;
    for (int place = 0; place < count; ++place) {
      Options options;
      options.sabotage = static_cast<Sabotage>(kind);
      options.sabotage_place = place;
      const Report report = run(options);
      count = std::max(count, report.sabotage_places[static_cast<size_t>(kind)]);
      if (report.sabotage_places[static_cast<size_t>(kind)] <= place) break;
      ++places;
      EXPECT_FALSE(report.clean()) << name << ": sabotage " << kind << " at place " << place;
    }
  }
  return places;
}

TEST(SimtSabotage, EveryLeftOutSynchronisationIsFound) {
  int places = 0;
  Problem<uint16_t> ring(64, 64, 256, ToBf16, FromBf16);
  places += SabotageEverywhere("ring", [&](Options options) {
    options.memory = &ring.memory;
    return Launch(options, {dim3(1), dim3(128), sizeof(RingShared)}, RingProduct,
                  static_cast<const uint16_t*>(ring.a), static_cast<const uint16_t*>(ring.b),
                  ring.c, ring.n, ring.k);
  });
  Problem<uint16_t> fed(64, 32, 320, ToBf16, FromBf16);
  places += SabotageEverywhere("fed", [&](const Options& options) {
    return RunFed<Operand::kBf16, uint16_t, 32>(&fed, options);
  });
  GatherProblem gather;
  places +=
      SabotageEverywhere("gather", [&](const Options& options) { return gather.Run(options); });
  EXPECT_GE(places, 20);
}

TEST(SimtSabotage, CleanKernelsAreCleanUnderAnySchedule) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Options options;
    options.seed = seed;
    options.landing = seed % 2 == 0 ? Landing::kEarly : Landing::kLate;
    Problem<uint16_t> fed(64, 32, 320, ToBf16, FromBf16);
    const Report one = RunFed<Operand::kBf16, uint16_t, 32>(&fed, options);
    EXPECT_TRUE(one.clean()) << one.Text();
    EXPECT_LT(fed.Error(), kTolerance);
    GatherProblem gather;
    const Report two = gather.Run(options);
    EXPECT_TRUE(two.clean()) << two.Text();
    EXPECT_TRUE(gather.Right());
  }
}

}  // namespace
}  // namespace weir::kernels::simt
