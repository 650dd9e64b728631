// SPDX-License-Identifier: Apache-2.0
//
// Bodies of the inner loops that run over one row. The including file has defined Vec; everything
// is in an unnamed namespace.
#pragma once

#include "kernels/cpu/math_body.h"

namespace weir::kernels::cpu {
namespace {

// Chains of kSquares vectors, added up in double: a row may be tens of thousands wide.
double SumOfSquaresRow(const float* x, int64_t count) {
  constexpr int64_t kSquares = 64 * Vec::kLanes;
  double total = 0;
  for (int64_t first = 0; first < count; first += kSquares) {
    Vec::F squares = Vec::Zero();
    const int64_t left = count - first < kSquares ? count - first : kSquares;
    ForVectors(
        left, [&](int64_t i, int n) __attribute__((always_inline)) {
          const Vec::F value = LoadSome(x + first + i, n);
          squares = Vec::Fma(value, value, squares);
        });
    total += static_cast<double>(Vec::Sum(squares));
  }
  return total;
}

void RmsNormRow(const float* x, const float* weight, int width, float eps, float* out) {
  const double mean = SumOfSquaresRow(x, width) / width + static_cast<double>(eps);
  const Vec::F inverse = Vec::Set1(static_cast<float>(1.0 / __builtin_sqrt(mean)));
  ForVectors(
      width, [&](int64_t i, int n) __attribute__((always_inline)) {
        const Vec::F value = Vec::Mul(LoadSome(x + i, n), inverse);
        StoreSome(out + i, Vec::Mul(value, LoadSome(weight + i, n)), n);
      });
}

void AddRow(float* sum, const float* x, int64_t count) {
  ForVectors(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        StoreSome(sum + i, Vec::Add(LoadSome(sum + i, n), LoadSome(x + i, n)), n);
      });
}

void AxpyRow(float* sum, float a, const float* x, int64_t count) {
  const Vec::F factor = Vec::Set1(a);
  ForVectors(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        StoreSome(sum + i, Vec::Fma(factor, LoadSome(x + i, n), LoadSome(sum + i, n)), n);
      });
}

// Independent lanes, which the compiler turns into registers of doubles.
void ReluAxpyRow(double* sum, double a, const float* x, int64_t count) {
  for (int64_t k = 0; k < count; ++k) sum[k] += (x[k] < 0 ? 0.0 : static_cast<double>(x[k])) * a;
}

void SwigluRow(float* gate, const float* up, int64_t count, float limit, float factor) {
  const Vec::F most = Vec::Set1(limit > 0 ? limit : 3.4e38f);
  const Vec::F least = Vec::Sub(Vec::Zero(), most);
  ForVectors(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        const Vec::F g = Vec::Min(LoadSome(gate + i, n), most);
        const Vec::F u = Vec::Max(Vec::Min(LoadSome(up + i, n), most), least);
        const Vec::F below = Vec::Add(Vec::Set1(1.0f), Exp(Vec::Sub(Vec::Zero(), g)));
        StoreSome(gate + i, Vec::Mul(Vec::Mul(Vec::Div(g, below), u), Vec::Set1(factor)), n);
      });
}

void WidenBf16Row(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) Vec::Store(to + i, Vec::WidenBf16(from + i));
  for (; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    __builtin_memcpy(to + i, &bits, sizeof(bits));
  }
}

void FillRowwise(KernelTable* table) {
  table->rms_norm = RmsNormRow;
  table->sum_of_squares = SumOfSquaresRow;
  table->add = AddRow;
  table->axpy = AxpyRow;
  table->swiglu = SwigluRow;
  table->relu_axpy = ReluAxpyRow;
  table->widen_bf16 = WidenBf16Row;
}

}  // namespace
}  // namespace weir::kernels::cpu
