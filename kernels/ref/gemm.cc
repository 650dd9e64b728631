// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/access.h"
#include "kernels/ref/matrix.h"
#include "kernels/ref/project.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {

void RefOps::Linear(Stream& stream, const LinearArgs& args) const {
  const KernelScope scope(stream);
  const auto in = [&](int r) { return F32(args.x) + r * args.weight.cols; };
  const auto out = [&](int r) { return F32(args.out) + r * args.weight.rows; };
  Project(args.weight, args.rows, args.keep_f32 ? Rounding(false) : round_, in, out);
}

void RefOps::GroupedLinear(Stream& stream, const GroupedLinearArgs& args) const {
  const KernelScope scope(stream);
  const Matrix& m = args.weight;
  const int64_t rank = m.rows / args.groups;
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = F32(args.x) + r * args.groups * m.cols;
    float* out = F32(args.out) + r * m.rows;
    for (int64_t o = 0; o < m.rows; ++o) {
      const float* group = x + o / rank * m.cols;
      double sum = 0;
      for (int64_t i = 0; i < m.cols; ++i) {
        // The weight is made BF16 and the activations stay as they are, where `vendor` rounds.
        sum += static_cast<double>(group[i]) * round_(MatrixAt(m, o, i));
      }
      out[o] = round_(sum);
    }
  }
}

void RefOps::MlaAbsorbQuery(Stream& stream, const MlaAbsorbArgs& args) const {
  const KernelScope scope(stream);
  const int head_width = args.nope + args.rope;
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const float* q = F32(args.in) + (r * args.heads + h) * head_width;
      float* out = F32(args.out) + (r * args.heads + h) * args.latent;
      const int64_t first = h * (args.nope + args.value);
      for (int64_t j = 0; j < args.latent; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < args.nope; ++i) {
          sum += static_cast<double>(q[i]) * MatrixAt(args.kv_b, first + i, j);
        }
        out[j] = static_cast<float>(sum);
      }
    }
  }
}

void RefOps::MlaExpandValue(Stream& stream, const MlaAbsorbArgs& args) const {
  const KernelScope scope(stream);
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const float* z = F32(args.in) + (r * args.heads + h) * args.latent;
      float* out = F32(args.out) + (r * args.heads + h) * args.value;
      const int64_t first = h * (args.nope + args.value) + args.nope;
      for (int64_t i = 0; i < args.value; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < args.latent; ++j) {
          sum += static_cast<double>(z[j]) * MatrixAt(args.kv_b, first + i, j);
        }
        out[i] = round_(sum);
      }
    }
  }
}

}  // namespace weir::kernels::ref
