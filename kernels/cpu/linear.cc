// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/run.h"
#include "kernels/ref/access.h"

namespace weir::kernels::cpu {
namespace {

using ref::F32;

}  // namespace

void RunLinear(const KernelTable& kernels, Team& team, const LinearArgs& args) {
  const Packed& w = PackedOf(args.weight).whole;
  const float* x = F32(args.x);
  float* out = F32(args.out);
  const int64_t rows = args.rows;
  // A long batch is split by rows as well, so that few tiles still feed all threads.
  const int64_t chunks = (rows + kRowsMax - 1) / kRowsMax;
  const int64_t grain = TileGrain(w, std::min<int64_t>(rows, kRowsMax));
  team.For(w.tiles * chunks, grain, [&](const Team::Part& part, int64_t index) {
    const int64_t tile = index / chunks;
    const int64_t first = index % chunks * kRowsMax;
    const float* in = x + first * w.cols;
    float* to = out + first * w.rows + tile * kTile;
    MultiplyTileRows(
        kernels, part, w, tile, std::min<int64_t>(rows - first, kRowsMax),
        WidthOfTile(w.rows, tile), [&](int64_t r) { return in + r * w.cols; },
        [&](int64_t r) { return to + r * w.rows; });
  });
}

// A tile may hold outputs of several groups: it is then computed for each, and each keeps its own.
void RunGroupedLinear(const KernelTable& kernels, Team& team, const GroupedLinearArgs& args) {
  const Packed& w = PackedOf(args.weight).whole;
  const int64_t rank = w.rows / args.groups;
  const int64_t x_stride = args.groups * w.cols;
  team.For(w.tiles, TileGrain(w, args.rows), [&](const Team::Part& part, int64_t tile) {
    const int64_t begin = tile * kTile;
    const int64_t end = begin + WidthOfTile(w.rows, tile);
    auto* product = reinterpret_cast<float*>(ScratchBehindMultiply(part));  // [kRowsMax][kTile]
    for (int64_t group = begin / rank; group * rank < end; ++group) {
      const int64_t from = std::max(begin, group * rank);
      const int64_t to = std::min(end, (group + 1) * rank);
      for (int64_t first = 0; first < args.rows; first += kRowsMax) {
        const int64_t count = std::min<int64_t>(kRowsMax, args.rows - first);
        const float* x = F32(args.x) + first * x_stride + group * w.cols;
        MultiplyTileRows(
            kernels, part, w, tile, count, kTile, [&](int64_t r) { return x + r * x_stride; },
            [&](int64_t r) { return product + r * kTile; });
        for (int64_t r = 0; r < count; ++r) {
          std::copy_n(product + r * kTile + (from - begin), to - from,
                      F32(args.out) + (first + r) * w.rows + from);
        }
      }
    }
  });
}

namespace {

// Every head of every row times that head's tiles of one half of kv_b.
void MultiplyByHead(const KernelTable& kernels, Team& team, const MlaAbsorbArgs& args, int half,
                    int64_t x_head, int64_t out_head) {
  const PackedMatrix& matrix = PackedOf(args.kv_b);
  const Packed& w = half == 0 ? matrix.whole : matrix.second;
  const int64_t head_tiles = matrix.head_tiles[half];
  team.For(w.tiles, TileGrain(w, args.rows), [&](const Team::Part& part, int64_t tile) {
    const int64_t head = tile / head_tiles;
    const int64_t o = tile % head_tiles * kTile;
    const float* x = F32(args.in) + head * x_head;
    float* out = F32(args.out) + head * out_head + o;
    MultiplyTileRows(
        kernels, part, w, tile, args.rows, static_cast<int>(std::min<int64_t>(kTile, out_head - o)),
        [&](int64_t r) { return x + r * args.heads * x_head; },
        [&](int64_t r) { return out + r * args.heads * out_head; });
  });
}

}  // namespace

void RunMlaAbsorbQuery(const KernelTable& kernels, Team& team, const MlaAbsorbArgs& args) {
  MultiplyByHead(kernels, team, args, 0, args.nope + args.rope, args.latent);
}

void RunMlaExpandValue(const KernelTable& kernels, Team& team, const MlaAbsorbArgs& args) {
  MultiplyByHead(kernels, team, args, 1, args.latent, args.value);
}

}  // namespace weir::kernels::cpu
