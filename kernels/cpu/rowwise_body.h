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

// In double: what is made of it takes a square root near zero.
double DotOfProductsRow(const float* a, const float* b, const float* c, const float* d,
                        int64_t count) {
  double lane[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int k = 0; k < 8; ++k) {
      const double x = static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
      const double y = static_cast<double>(c[i + k]) * static_cast<double>(d[i + k]);
      lane[k] += x * y;
    }
  }
  for (int k = 0; i < count; ++i, ++k) {
    lane[k] += static_cast<double>(a[i]) * static_cast<double>(b[i]) *
               (static_cast<double>(c[i]) * static_cast<double>(d[i]));
  }
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

void CollapseRow(const float* x, int streams, int64_t width, const float* pre, float* out) {
  ForVectors(
      width, [&](int64_t i, int n) __attribute__((always_inline)) {
        Vec::F sum = Vec::Zero();
        for (int k = 0; k < streams; ++k) {
          sum = Vec::Fma(Vec::Set1(pre[k]), LoadSome(x + k * width + i, n), sum);
        }
        StoreSome(out + i, sum, n);
      });
}

void ExpandRow(float* x, int streams, int64_t width, const float* y, const float* post,
               const float* comb) {
  ForVectors(
      width, [&](int64_t i, int n) __attribute__((always_inline)) {
        Vec::F in[8];  // kStreamsMax
        for (int j = 0; j < streams; ++j) in[j] = LoadSome(x + j * width + i, n);
        const Vec::F add = LoadSome(y + i, n);
        for (int k = 0; k < streams; ++k) {
          Vec::F sum = Vec::Mul(Vec::Set1(post[k]), add);
          for (int j = 0; j < streams; ++j) {
            sum = Vec::Fma(Vec::Set1(comb[j * streams + k]), in[j], sum);
          }
          StoreSome(x + k * width + i, sum, n);
        }
      });
}

// As integers in the order of the floats, whose least and largest registers compute; a NaN lies
// beyond an infinity.
float TopRow(const float* x, int64_t count) {
  constexpr int32_t kInfinity = 0x7f800000;
  int32_t most = INT32_MIN;
  int32_t least = INT32_MAX;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits = 0;
    __builtin_memcpy(&bits, x + i, sizeof(bits));
    const int32_t key = bits ^ (bits >> 31 & 0x7fffffff);
    most = key > most ? key : most;
    least = key < least ? key : least;
  }
  if (most > kInfinity || least < -kInfinity - 1) return __builtin_nanf("");
  const int32_t bits = most ^ (most >> 31 & 0x7fffffff);
  float top = 0;
  __builtin_memcpy(&top, &bits, sizeof(top));
  return top;
}

void ExpBelowRow(const float* x, float top, int64_t count, float* out) {
  ForVectors(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        StoreSome(out + i, Exp(Vec::Sub(LoadSome(x + i, n), Vec::Set1(top))), n);
      });
}

// A maximum keeps its second operand when one is NaN.
void ReluAxpyRow(double* sum, double a, const float* x, int64_t count) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes) {
    Vec::AddDoubles(sum + i, a, Vec::Max(Vec::Zero(), Vec::Load(x + i)));
  }
  for (; i < count; ++i) sum[i] += (x[i] < 0 ? 0.0 : static_cast<double>(x[i])) * a;
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
  table->dot_of_products = DotOfProductsRow;
  table->collapse = CollapseRow;
  table->expand = ExpandRow;
  table->top = TopRow;
  table->exp_below = ExpBelowRow;
  table->relu_axpy = ReluAxpyRow;
  table->widen_bf16 = WidenBf16Row;
}

}  // namespace
}  // namespace weir::kernels::cpu
