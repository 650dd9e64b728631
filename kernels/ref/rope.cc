// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "kernels/ref/access.h"
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

}  // namespace

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
