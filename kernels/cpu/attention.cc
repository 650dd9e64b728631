// SPDX-License-Identifier: Apache-2.0
//
// Attention for a few heads of one row at a time: keys come in tiles of kAttendTile counted from
// the row's first, each expanded to F32 once for all heads of the block, so a row's arithmetic
// depends on its position alone.
#include <algorithm>

#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "kernels/cpu/attend.h"
#include "kernels/cpu/run.h"
#include "kernels/ref/access.h"
#include "kernels/ref/mla_keys.h"

namespace weir::kernels::cpu {
namespace {

using ref::As;
using ref::F32;
using ref::I32;

}  // namespace

void RunMlaAttention(const KernelTable& kernels, Team& team, const MlaAttentionArgs& args) {
  WEIR_CHECK(args.kv.format == RowFormat::kF32 || args.kv.format == RowFormat::kBf16);
  const int64_t width = args.latent + args.rope;
  const int block = HeadBlock(args.heads, args.rows->count, team.threads());
  const int64_t blocks = CeilDiv(args.heads, block);
  team.For(args.rows->count * blocks, 1, [&](const Team::Part& part, int64_t index) {
    const int64_t r = index / blocks;
    const int64_t first = index % blocks * block;
    const int heads = static_cast<int>(std::min<int64_t>(block, args.heads - first));
    AttendScratch scratch(part.scratch, width, args.latent);
    AttendTile tile = scratch.Begin(heads, args.scale);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t head = r * args.heads + first + h;
      float* q = scratch.QueryRow(h);
      std::copy_n(F32(args.q_latent) + head * args.latent, args.latent, q);
      std::copy_n(F32(args.q) + head * (args.nope + args.rope) + args.nope, args.rope,
                  q + args.latent);
      scratch.Pad(q, width);
    }
    const int32_t sequence = I32(args.rows->sequence)[r];
    const ref::MlaKeys keys(args, r);
    for (int32_t t = 0; t < keys.count(); t += kAttendTile) {
      tile.count = std::min(kAttendTile, keys.count() - t);
      for (int i = 0; i < tile.count; ++i) {
        const DeviceAddress from = ref::KvRow(args.kv, sequence, keys[t + i]);
        float* row = scratch.KeyRow(i);
        if (args.kv.format == RowFormat::kBf16) {
          kernels.widen_bf16(As<const uint16_t>(from), row, width);
        } else {
          std::copy_n(As<const float>(from), width, row);
        }
        scratch.Pad(row, width);
      }
      kernels.attend(tile);
    }
    for (int64_t h = 0; h < heads; ++h) {
      float* out = F32(args.out) + (r * args.heads + first + h) * args.latent;
      const float* sum = tile.acc + h * tile.acc_stride;
      const float inverse = 1.0f / tile.total[h];
      for (int64_t j = 0; j < args.latent; ++j) out[j] = sum[j] * inverse;
    }
  });
}

}  // namespace weir::kernels::cpu
