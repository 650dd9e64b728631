// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {

void RefOps::Embed(Stream& stream, const EmbedArgs& args) const {
  const KernelScope scope(stream);
  const int64_t width = args.table.shape[1];
  for (int r = 0; r < args.rows->count; ++r) {
    const int64_t token = I32(args.rows->token)[r];
    WEIR_CHECK(token >= 0 && token < args.table.shape[0]);
    float* out = F32(args.out) + r * width;
    if (args.table.dtype == DType::kBf16) {
      const auto* row = As<const uint16_t>(args.table.address) + token * width;
      for (int64_t i = 0; i < width; ++i) out[i] = Bf16ToFloat(row[i]);
    } else {
      std::memcpy(out, F32(args.table) + token * width, static_cast<size_t>(width) * sizeof(float));
    }
  }
}

void RefOps::RmsNorm(Stream& stream, const RmsNormArgs& args) const {
  const KernelScope scope(stream);
  const float* weight = F32(args.weight);
  for (int r = 0; r < args.rows; ++r) {
    const float* x = F32(args.x) + static_cast<int64_t>(r) * args.x_stride;
    float* out = F32(args.out) + static_cast<int64_t>(r) * args.width;
    const double inverse = 1.0 / std::sqrt(Dot(x, x, args.width) / args.width + args.eps);
    for (int i = 0; i < args.width; ++i) out[i] = static_cast<float>(x[i] * inverse * weight[i]);
  }
}

void RefOps::Zero(Stream& stream, const Tensor& tensor, int64_t elements) const {
  const KernelScope scope(stream);
  std::memset(As<void>(tensor.address), 0,
              static_cast<size_t>(elements) * DTypeBytes(tensor.dtype));
}

void RefOps::Add(Stream& stream, const AddArgs& args) const {
  const KernelScope scope(stream);
  float* sum = F32(args.sum);
  const float* x = F32(args.x);
  for (int64_t i = 0; i < args.elements; ++i) sum[i] += x[i];
}

void RefOps::Swiglu(Stream& stream, const SwigluArgs& args) const {
  const KernelScope scope(stream);
  float* gate = F32(args.gate);
  const float* up = F32(args.up);
  for (int64_t i = 0; i < args.elements; ++i) {
    const double g = gate[i];
    gate[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * up[i]);
  }
}

void RefOps::GatherRows(Stream& stream, const GatherRowsArgs& args) const {
  const KernelScope scope(stream);
  const auto width = static_cast<int64_t>(args.width);
  for (int i = 0; i < args.count; ++i) {
    std::memcpy(F32(args.out) + i * width, F32(args.x) + I32(args.index)[i] * width,
                static_cast<size_t>(width) * sizeof(float));
  }
}

}  // namespace weir::kernels::ref
