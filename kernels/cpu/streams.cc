// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/stdx/check.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/run.h"
#include "kernels/ref/access.h"
#include "kernels/ref/mixing.h"

namespace weir::kernels::cpu {
namespace {

using ref::F32;

// From a row's mixing products to its weights.
void MixRow(const StreamMixArgs& args, int64_t r, const double* m) {
  const int n = args.streams;
  const float* scale = F32(args.scale);
  const float* base = F32(args.base);
  double value[2 * kTile];
  for (int i = 0; i < 2 * n + n * n; ++i) value[i] = m[i] * scale[std::min(i / n, 2)] + base[i];
  const ref::Mixing mixing = ref::MixingOf(value, n, args.iterations, args.eps);
  for (int k = 0; k < n; ++k) {
    F32(args.pre)[r * n + k] = static_cast<float>(mixing.pre[k]);
    F32(args.post)[r * n + k] = static_cast<float>(mixing.post[k]);
  }
  for (int i = 0; i < n * n; ++i)
    F32(args.comb)[r * n * n + i] = static_cast<float>(mixing.comb[i]);
}

}  // namespace

void RunStreamMix(const KernelTable& kernels, Team& team, const StreamMixArgs& args) {
  const int n = args.streams;
  const Packed& w = PackedOf(args.fn).whole;
  WEIR_CHECK(n <= kStreamsMax && w.tiles <= 2);
  constexpr int64_t kRows = 8;  // that share an expanded weight
  team.For((args.rows + kRows - 1) / kRows, 1, [&](const Team::Part& part, int64_t chunk) {
    const int64_t first = chunk * kRows;
    const int64_t count = std::min<int64_t>(kRows, args.rows - first);
    auto* product = reinterpret_cast<float*>(ScratchBehindMultiply(part));  // [kRows][2 kTile]
    const float* x = F32(args.x) + first * w.cols;
    for (int64_t tile = 0; tile < w.tiles; ++tile) {
      MultiplyTileRows(
          kernels, part, w, tile, count, kTile, [&](int64_t r) { return x + r * w.cols; },
          [&](int64_t r) { return product + r * 2 * kTile + tile * kTile; });
    }
    for (int64_t r = 0; r < count; ++r) {
      const double squares = kernels.sum_of_squares(x + r * w.cols, w.cols);
      const double by =
          1.0 / std::sqrt(squares / static_cast<double>(w.cols) + double{args.norm_eps});
      double m[2 * kTile];
      for (int i = 0; i < 2 * n + n * n; ++i) m[i] = double{product[r * 2 * kTile + i]} * by;
      MixRow(args, first + r, m);
    }
  });
}

void RunEmbedStreams(const KernelTable& kernels, Team& team, const EmbedStreamsArgs& args) {
  const int64_t width = args.table.shape[1];
  const int64_t n = args.streams;
  team.For(args.rows->count, 2, [&](const Team::Part&, int64_t r) {
    const int64_t token = ref::I32(args.rows->token)[r];
    WEIR_CHECK(token >= 0 && token < args.table.shape[0]);
    float* x = F32(args.x) + r * n * width;
    if (args.table.dtype == DType::kBf16) {
      kernels.widen_bf16(ref::As<const uint16_t>(args.table.address) + token * width, x, width);
    } else {
      std::copy_n(F32(args.table) + token * width, width, x);
    }
    for (int64_t k = 1; k < n; ++k) std::copy_n(x, width, x + k * width);
    for (int64_t k = 0; k < n; ++k) F32(args.pre)[r * n + k] = k == 0 ? 1.0f : 0.0f;
  });
}

void RunCollapse(const KernelTable& kernels, Team& team, const CollapseArgs& args) {
  const int64_t width = args.width;
  team.For(args.rows, 2, [&](const Team::Part&, int64_t r) {
    kernels.collapse(F32(args.x) + r * args.streams * width, args.streams, width,
                     F32(args.pre) + r * args.streams, F32(args.out) + r * width);
  });
}

void RunExpand(const KernelTable& kernels, Team& team, const ExpandArgs& args) {
  const int64_t n = args.streams;
  const int64_t width = args.width;
  WEIR_CHECK(n <= kStreamsMax);
  team.For(args.rows, 2, [&](const Team::Part&, int64_t r) {
    kernels.expand(F32(args.x) + r * n * width, args.streams, width, F32(args.y) + r * width,
                   F32(args.post) + r * n, F32(args.comb) + r * n * n);
  });
}

}  // namespace weir::kernels::cpu
