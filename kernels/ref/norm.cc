// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/gated.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/ref/rotary.h"

namespace weir::kernels::ref {
namespace {

// One row of an F32 or BF16 table.
void LookUp(const Tensor& table, int64_t token, float* out) {
  const int64_t width = table.shape[1];
  WEIR_CHECK(token >= 0 && token < table.shape[0]);
  if (table.dtype == DType::kBf16) {
    const auto* row = As<const uint16_t>(table.address) + token * width;
    for (int64_t i = 0; i < width; ++i) out[i] = Bf16ToFloat(row[i]);
  } else {
    std::memcpy(out, F32(table) + token * width, static_cast<size_t>(width) * sizeof(float));
  }
}

}  // namespace

void RefOps::Embed(Stream& stream, const EmbedArgs& args) const {
  const KernelScope scope(stream);
  const int64_t width = args.table.shape[1];
  for (int64_t r = 0; r < args.rows->count; ++r) {
    LookUp(args.table, I32(args.rows->token)[r], F32(args.out) + r * width);
  }
}

void RefOps::EmbedStreams(Stream& stream, const EmbedStreamsArgs& args) const {
  const KernelScope scope(stream);
  const int64_t width = args.table.shape[1];
  for (int64_t r = 0; r < args.rows->count; ++r) {
    for (int64_t k = 0; k < args.streams; ++k) {
      LookUp(args.table, I32(args.rows->token)[r], F32(args.x) + (r * args.streams + k) * width);
      F32(args.pre)[r * args.streams + k] = k == 0 ? 1.0f : 0.0f;
    }
  }
}

void RefOps::RmsNorm(Stream& stream, const RmsNormArgs& args) const {
  const KernelScope scope(stream);
  const float* weight = F32(args.weight);
  for (int r = 0; r < args.rows; ++r) {
    const float* x = F32(args.x) + static_cast<int64_t>(r) * args.x_stride;
    float* out = F32(args.out) + static_cast<int64_t>(r) * args.width;
    NormRow(x, args.width, args.eps, weight, out, round_);
  }
}

void RefOps::LayerNorm(Stream& stream, const LayerNormArgs& args) const {
  const KernelScope scope(stream);
  const float* weight = F32(args.weight);
  const float* bias = F32(args.bias);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = F32(args.x) + r * args.width;
    float* out = F32(args.out) + r * args.width;
    double mean = 0;
    for (int i = 0; i < args.width; ++i) mean += x[i];
    mean /= args.width;
    double square = 0;
    for (int i = 0; i < args.width; ++i) square += (x[i] - mean) * (x[i] - mean);
    const double inverse = 1.0 / std::sqrt(square / args.width + args.eps);
    for (int i = 0; i < args.width; ++i) {
      out[i] = round_((x[i] - mean) * inverse * weight[i] + bias[i]);
    }
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
  for (int64_t i = 0; i < args.elements; ++i) sum[i] = round_(sum[i] + x[i]);
}

void RefOps::Swiglu(Stream& stream, const SwigluArgs& args) const {
  const KernelScope scope(stream);
  float* gate = F32(args.gate);
  const float* up = F32(args.up);
  for (int64_t i = 0; i < args.elements; ++i) {
    gate[i] = round_(Gated(gate[i], up[i], args.limit));
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
