// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/by_row.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/ref/rotary.h"

namespace weir::kernels::ref {
namespace {

void StoreKv(DeviceAddress row, RowFormat format, int index, float value) {
  if (format == RowFormat::kBf16) {
    As<uint16_t>(row)[index] = FloatToBf16(value);
  } else {
    As<float>(row)[index] = value;
  }
}

constexpr int kIndexWidthMax = 1024;

// x = H x / sqrt(width) with H[a][b] = (-1)^popcount(a & b).
void Hadamard(float* x, int width, const Rounding& round) {
  double value[kIndexWidthMax];
  std::copy_n(x, width, value);
  for (int half = 1; half < width; half *= 2) {
    for (int i = 0; i < width; ++i) {
      if ((i & half) != 0) continue;
      const double a = value[i];
      const double b = value[i + half];
      value[i] = a + b;
      value[i + half] = a - b;
    }
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(width));
  for (int i = 0; i < width; ++i) x[i] = round(value[i] * scale);
}

}  // namespace

void IndexRotateRow(const IndexRotateArgs& args, int64_t r, const Rounding& round) {
  WEIR_CHECK(args.width <= kIndexWidthMax && (args.width & (args.width - 1)) == 0);
  float* const row = F32(args.x) + r * args.heads * args.width;
  const int half = args.rope / 2;
  for (int i = 0; i < half; ++i) {
    const Rotation by = RotationOf(I32(args.rows->position)[r], F32(args.frequency)[i]);
    for (int64_t h = 0; h < args.heads; ++h) {
      float* x = row + h * args.width + i;
      float pair[2] = {x[0], x[half]};
      Rotate(pair, by, round);
      x[0] = pair[0];
      x[half] = pair[1];
    }
  }
  for (int64_t h = 0; h < args.heads; ++h) Hadamard(row + h * args.width, args.width, round);
}

void RefOps::IndexRotate(Stream& stream, const IndexRotateArgs& args) const {
  const KernelScope scope(stream);
  for (int64_t r = 0; r < args.rows->count; ++r) IndexRotateRow(args, r, round_);
}

void RefOps::RopeQuery(Stream& stream, const RopeQueryArgs& args) const {
  const KernelScope scope(stream);
  const int head_width = args.nope + args.rope;
  for (int64_t r = 0; r < args.rows->count; ++r) {
    const int32_t position = I32(args.rows->position)[r];
    for (int i = 0; i < args.rope / 2; ++i) {
      Rotation by = RotationOf(position, F32(args.frequency)[i]);
      if (args.inverse) by.sine = -by.sine;
      for (int64_t h = 0; h < args.heads; ++h) {
        Rotate(F32(args.q) + (r * args.heads + h) * head_width + args.nope + 2 * i, by,
               round_);
      }
    }
  }
}

void RefOps::MlaKvWrite(Stream& stream, const MlaKvWriteArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.kv.format == RowFormat::kF32 || args.kv.format == RowFormat::kBf16);
  const float* weight = F32(args.norm_weight);
  for (int64_t r = 0; r < args.rows->count; ++r) {
    const int32_t position = I32(args.rows->position)[r];
    if (position < I32(args.rows->write_floor)[r]) continue;
    const float* x = F32(args.kv_a) + r * (args.latent + args.rope);
    const DeviceAddress row = KvRow(args.kv, I32(args.rows->sequence)[r], position);
    const double inverse = 1.0 / std::sqrt(Dot(x, x, args.latent) / args.latent + args.eps);
    for (int i = 0; i < args.latent; ++i) {
      StoreKv(row, args.kv.format, i, round_(x[i] * inverse * weight[i]));
    }
    for (int i = 0; i < args.rope / 2; ++i) {
      float pair[2] = {x[args.latent + 2 * i], x[args.latent + 2 * i + 1]};
      Rotate(pair, RotationOf(position, F32(args.frequency)[i]), round_);
      StoreKv(row, args.kv.format, args.latent + 2 * i, pair[0]);
      StoreKv(row, args.kv.format, args.latent + 2 * i + 1, pair[1]);
    }
  }
}

}  // namespace weir::kernels::ref
