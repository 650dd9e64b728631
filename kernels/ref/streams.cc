// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/matrix.h"
#include "kernels/ref/mixing.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {
namespace {

constexpr int kValuesMax = 2 * kStreamsMax + kStreamsMax * kStreamsMax;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Divides each line of c by its sum + eps; `step` apart within a line, lines `line` apart.
void NormaliseLines(double* c, int n, int line, int step, double eps) {
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    for (int k = 0; k < n; ++k) sum += c[i * line + k * step];
    for (int k = 0; k < n; ++k) c[i * line + k * step] /= sum + eps;
  }
}

void Softmax(double* row, int n) {
  const double top = *std::max_element(row, row + n);
  double sum = 0;
  for (int k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - top);
  for (int k = 0; k < n; ++k) row[k] /= sum;
}

}  // namespace

Mixing MixingOf(const double* value, int n, int iterations, double eps) {
  Mixing mixing;
  for (int k = 0; k < n; ++k) {
    mixing.pre[k] = Sigmoid(value[k]) + eps;
    mixing.post[k] = 2 * Sigmoid(value[n + k]);
  }
  double* c = mixing.comb.data();
  std::copy_n(value + 2 * n, n * n, c);
  for (int j = 0; j < n; ++j) Softmax(c + j * n, n);
  for (int i = 0; i < n * n; ++i) c[i] += eps;
  NormaliseLines(c, n, 1, n, eps);  // columns
  for (int i = 1; i < iterations; ++i) {
    NormaliseLines(c, n, n, 1, eps);  // rows
    NormaliseLines(c, n, 1, n, eps);
  }
  return mixing;
}

void RefOps::StreamMix(Stream& stream, const StreamMixArgs& args) const {
  const KernelScope scope(stream);
  const int n = args.streams;
  const int values = 2 * n + n * n;
  WEIR_CHECK(n <= kStreamsMax && args.fn.rows == values);
  const auto wide = static_cast<int>(args.fn.cols);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = F32(args.x) + r * wide;
    double value[kValuesMax];
    Multiply(
        args.fn, 1, [&](int) { return x; }, [&](int) { return &value[0]; });
    const double inverse = 1.0 / std::sqrt(Dot(x, x, wide) / wide + args.norm_eps);
    for (int i = 0; i < values; ++i) {
      const double scale = F32(args.scale)[std::min(i / n, 2)];
      value[i] = value[i] * inverse * scale + F32(args.base)[i];
    }
    const Mixing mixing = MixingOf(value, n, args.iterations, args.eps);
    for (int64_t k = 0; k < n; ++k) {
      F32(args.pre)[r * n + k] = static_cast<float>(mixing.pre[k]);
      F32(args.post)[r * n + k] = static_cast<float>(mixing.post[k]);
    }
    for (int64_t i = 0; i < n * n; ++i) {
      F32(args.comb)[r * n * n + i] = static_cast<float>(mixing.comb[i]);
    }
  }
}

void RefOps::Collapse(Stream& stream, const CollapseArgs& args) const {
  const KernelScope scope(stream);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = F32(args.x) + r * args.streams * args.width;
    const float* pre = F32(args.pre) + r * args.streams;
    float* out = F32(args.out) + r * args.width;
    for (int64_t d = 0; d < args.width; ++d) {
      double sum = 0;
      for (int64_t k = 0; k < args.streams; ++k) {
        sum += static_cast<double>(pre[k]) * x[k * args.width + d];
      }
      out[d] = round_(sum);
    }
  }
}

void RefOps::Expand(Stream& stream, const ExpandArgs& args) const {
  const KernelScope scope(stream);
  const int64_t n = args.streams;
  WEIR_CHECK(n <= kStreamsMax);
  for (int64_t r = 0; r < args.rows; ++r) {
    float* x = F32(args.x) + r * n * args.width;
    const float* y = F32(args.y) + r * args.width;
    const float* post = F32(args.post) + r * n;
    const float* comb = F32(args.comb) + r * n * n;
    for (int64_t d = 0; d < args.width; ++d) {
      double sum[kStreamsMax];
      for (int64_t k = 0; k < n; ++k) {
        sum[k] = static_cast<double>(post[k]) * y[d];
        for (int64_t j = 0; j < n; ++j) {
          sum[k] += static_cast<double>(comb[j * n + k]) * x[j * args.width + d];
        }
      }
      for (int64_t k = 0; k < n; ++k) x[k * args.width + d] = round_(sum[k]);
    }
  }
}

}  // namespace weir::kernels::ref
