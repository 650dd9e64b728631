// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "base/stdx/check.h"
#include "kernels/cpu/run.h"
#include "kernels/ref/access.h"
#include "kernels/ref/rotary.h"

namespace weir::kernels::cpu {
namespace {

using ref::As;
using ref::F32;
using ref::I32;

// Elements that one thread should take at a time.
constexpr int64_t kElements = 16384;

int64_t RowGrain(int64_t width) {
  return std::max<int64_t>(1, kElements / std::max<int64_t>(1, width));
}

// Calls f(first, count) for pieces of [0, elements).
template <class F>
void ForPieces(Team& team, int64_t elements, const F& f) {
  team.For((elements + kElements - 1) / kElements, 1, [&](const Team::Part&, int64_t piece) {
    const int64_t first = piece * kElements;
    f(first, std::min(kElements, elements - first));
  });
}

const ref::Rounding kNoRounding(false);

}  // namespace

void RunEmbed(const KernelTable& kernels, Team& team, const EmbedArgs& args) {
  const int64_t width = args.table.shape[1];
  team.For(args.rows->count, RowGrain(width), [&](const Team::Part&, int64_t r) {
    const int64_t token = I32(args.rows->token)[r];
    WEIR_CHECK(token >= 0 && token < args.table.shape[0]);
    float* out = F32(args.out) + r * width;
    if (args.table.dtype == DType::kBf16) {
      kernels.widen_bf16(As<const uint16_t>(args.table.address) + token * width, out, width);
    } else {
      std::memcpy(out, F32(args.table) + token * width, static_cast<size_t>(width) * sizeof(float));
    }
  });
}

void RunRmsNorm(const KernelTable& kernels, Team& team, const RmsNormArgs& args) {
  team.For(args.rows, RowGrain(args.width), [&](const Team::Part&, int64_t r) {
    kernels.rms_norm(F32(args.x) + r * args.x_stride, F32(args.weight), args.width, args.eps,
                     F32(args.out) + r * args.width);
  });
}

void RunAdd(const KernelTable& kernels, Team& team, const AddArgs& args) {
  ForPieces(team, args.elements, [&](int64_t first, int64_t count) {
    kernels.add(F32(args.sum) + first, F32(args.x) + first, count);
  });
}

void RunSwiglu(const KernelTable& kernels, Team& team, const SwigluArgs& args) {
  ForPieces(team, args.elements, [&](int64_t first, int64_t count) {
    kernels.swiglu(F32(args.gate) + first, F32(args.up) + first, count, args.limit, 1.0f);
  });
}

void RunRopeQuery(const KernelTable& kernels, Team& team, const RopeQueryArgs& args) {
  const int64_t head_width = args.nope + args.rope;
  const int64_t pairs = args.rope / 2;
  // A sine costs about as much as a hundred rotations' worth of memory: rows are the unit.
  team.For(args.rows->count, 1, [&](const Team::Part& part, int64_t r) {
    auto* by = reinterpret_cast<ref::Rotation*>(part.scratch);
    WEIR_CHECK(static_cast<size_t>(pairs) * sizeof(ref::Rotation) <= kThreadScratch);
    for (int64_t i = 0; i < pairs; ++i) {
      by[i] = ref::RotationOf(I32(args.rows->position)[r], F32(args.frequency)[i]);
      if (args.inverse) by[i].sine = -by[i].sine;
    }
    for (int64_t h = 0; h < args.heads; ++h) {
      float* pair = F32(args.q) + (r * args.heads + h) * head_width + args.nope;
      for (int64_t i = 0; i < pairs; ++i) ref::Rotate(pair + 2 * i, by[i], kNoRounding);
    }
  });
}

void RunMlaKvWrite(const KernelTable& kernels, Team& team, const MlaKvWriteArgs& args) {
  WEIR_CHECK(args.kv.format == RowFormat::kF32 || args.kv.format == RowFormat::kBf16);
  const int64_t width = args.latent + args.rope;
  WEIR_CHECK(static_cast<size_t>(width) * sizeof(float) <= kThreadScratch);
  team.For(args.rows->count, 4, [&](const Team::Part& part, int64_t r) {
    const int32_t position = I32(args.rows->position)[r];
    if (position < I32(args.rows->write_floor)[r]) return;
    const float* x = F32(args.kv_a) + r * width;
    auto* row = reinterpret_cast<float*>(part.scratch);
    kernels.rms_norm(x, F32(args.norm_weight), args.latent, args.eps, row);
    std::copy_n(x + args.latent, args.rope, row + args.latent);
    ref::RotateTail(row, static_cast<int>(width), args.rope, F32(args.frequency), position,
                    kNoRounding);
    const DeviceAddress to = ref::KvRow(args.kv, I32(args.rows->sequence)[r], position);
    if (args.kv.format == RowFormat::kBf16) {
      for (int64_t i = 0; i < width; ++i) As<uint16_t>(to)[i] = ref::FloatToBf16(row[i]);
    } else {
      std::memcpy(As<void>(to), row, static_cast<size_t>(width) * sizeof(float));
    }
  });
}

}  // namespace weir::kernels::cpu
