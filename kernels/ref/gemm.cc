// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/access.h"
#include "kernels/ref/matrix.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {

void RefOps::Linear(Stream& stream, const LinearArgs& args) const {
  const KernelScope scope(stream);
  const float* x = F32(args.x);
  float* out = F32(args.out);
  Multiply(
      args.weight, args.rows, [&](int r) { return x + r * args.weight.cols; },
      [&](int r) { return out + r * args.weight.rows; });
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
        out[i] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace weir::kernels::ref
