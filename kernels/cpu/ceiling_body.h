// SPDX-License-Identifier: Apache-2.0
//
// What the processor can do at most, to measure kernels against: a loop that reads memory, and one
// that multiplies and adds in registers. The including file has defined Vec; everything is in an
// unnamed namespace.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace weir::kernels::cpu {
namespace {

constexpr int kReaders = 4;
constexpr int kChains = 10;  // more than latency times ports

float ReadBytes(const uint8_t* from, int64_t bytes) {
  Vec::F most[kReaders];
#pragma GCC unroll 4
  for (int k = 0; k < kReaders; ++k) most[k] = Vec::Zero();
  const auto* at = reinterpret_cast<const float*>(from);
  for (int64_t i = 0; i < bytes / 4; i += kReaders * Vec::kLanes) {
#pragma GCC unroll 4
    for (int k = 0; k < kReaders; ++k) {
      most[k] = Vec::Max(most[k], Vec::Load(at + i + k * Vec::kLanes));
    }
  }
  return Vec::MaxOf(Vec::Max(Vec::Max(most[0], most[1]), Vec::Max(most[2], most[3])));
}

// Chains start apart, or the compiler makes one of all.
float MultiplyAdds(int64_t count) {
  Vec::F chain[kChains];
#pragma GCC unroll 16
  for (int k = 0; k < kChains; ++k) chain[k] = Vec::Set1(0.001f * static_cast<float>(k + 1));
  Vec::F x = Vec::Set1(1.0001f);
  const Vec::F y = Vec::Set1(0.9999f);
  const int64_t rounds = count / (kChains * Vec::kLanes);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+x"(x));
#pragma GCC unroll 16
    for (int k = 0; k < kChains; ++k) chain[k] = Vec::Fma(x, y, chain[k]);
  }
  Vec::F sum = Vec::Zero();
#pragma GCC unroll 16
  for (int k = 0; k < kChains; ++k) sum = Vec::Add(sum, chain[k]);
  return Vec::Sum(sum);
}

void FillCeiling(KernelTable* table) {
  table->read_bytes = ReadBytes;
  table->multiply_adds = MultiplyAdds;
}

}  // namespace
}  // namespace weir::kernels::cpu
