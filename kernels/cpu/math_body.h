// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions over a register of floats, for the bodies that need them. The including file
// has defined Vec; everything is in an unnamed namespace.
#pragma once

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace weir::kernels::cpu {
namespace {

// e^x within 2 units in the last place; below -87 and above 88 it stays at the value there, which
// is next to nothing and next to infinity. x = n ln 2 + r, and a polynomial in r.
WEIR_LANE_CODE Vec::F Exp(Vec::F x) {
  x = Vec::Min(Vec::Max(x, Vec::Set1(-87.0f)), Vec::Set1(88.0f));
  const Vec::I n = Vec::Round(Vec::Mul(x, Vec::Set1(1.44269504f)));
  const Vec::F whole = Vec::Float(n);
  Vec::F r = Vec::Fma(whole, Vec::Set1(-0.693359375f), x);
  r = Vec::Fma(whole, Vec::Set1(2.12194440e-4f), r);
  Vec::F p = Vec::Set1(1.9875691500e-4f);
  p = Vec::Fma(p, r, Vec::Set1(1.3981999507e-3f));
  p = Vec::Fma(p, r, Vec::Set1(8.3334519073e-3f));
  p = Vec::Fma(p, r, Vec::Set1(4.1665795894e-2f));
  p = Vec::Fma(p, r, Vec::Set1(1.6666665459e-1f));
  p = Vec::Fma(p, r, Vec::Set1(5.0000001201e-1f));
  p = Vec::Fma(p, Vec::Mul(r, r), r);
  return Vec::Mul(Vec::Add(p, Vec::Set1(1.0f)), Vec::Pow2(n));
}

// Calls f(vector of x, index) for all of n floats; a last partial vector goes through a copy padded
// with zeros, so that every element sees the same arithmetic.
template <class F>
WEIR_LANE_CODE void ForVectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) f(i, Vec::kLanes);
  if (i < n) f(i, static_cast<int>(n - i));
}

WEIR_LANE_CODE Vec::F LoadSome(const float* p, int count) {
  if (count == Vec::kLanes) return Vec::Load(p);
  alignas(64) float padded[Vec::kLanes] = {};
  for (int i = 0; i < count; ++i) padded[i] = p[i];
  return Vec::Load(padded);
}

WEIR_LANE_CODE void StoreSome(float* p, Vec::F x, int count) {
  if (count == Vec::kLanes) return Vec::Store(p, x);
  alignas(64) float padded[Vec::kLanes];
  Vec::Store(padded, x);
  for (int i = 0; i < count; ++i) p[i] = padded[i];
}

}  // namespace
}  // namespace weir::kernels::cpu
