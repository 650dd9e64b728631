// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {
namespace {

constexpr int kLatentMax = 4096;

struct Bf16 {
  uint16_t bits;
  explicit operator double() const { return Bf16ToFloat(bits); }
};

// One head of one row: scores and softmax over positions in ascending order, then the mean latent.
template <class Kv>
void AttendHead(const MlaAttentionArgs& args, int64_t r, int64_t h) {
  const int32_t sequence = I32(args.rows->sequence)[r];
  const int32_t position = I32(args.rows->position)[r];
  const float* q_latent = F32(args.q_latent) + (r * args.heads + h) * args.latent;
  const float* q_rope = F32(args.q) + (r * args.heads + h) * (args.nope + args.rope) + args.nope;
  double* score = As<double>(args.scores.address);
  double top = -HUGE_VAL;
  for (int32_t t = 0; t <= position; ++t) {
    const Kv* row = As<const Kv>(KvRow(args.kv, sequence, t));
    const double dot = Dot(q_latent, row, args.latent) + Dot(q_rope, row + args.latent, args.rope);
    score[t] = dot * args.scale;
    top = std::max(top, score[t]);
  }
  double total = 0;
  double sum[kLatentMax];
  std::fill_n(sum, args.latent, 0.0);
  for (int32_t t = 0; t <= position; ++t) {
    const double weight = std::exp(score[t] - top);
    total += weight;
    const Kv* row = As<const Kv>(KvRow(args.kv, sequence, t));
    for (int j = 0; j < args.latent; ++j) sum[j] += weight * static_cast<double>(row[j]);
  }
  float* out = F32(args.out) + (r * args.heads + h) * args.latent;
  for (int j = 0; j < args.latent; ++j) out[j] = static_cast<float>(sum[j] / total);
}

}  // namespace

void RefOps::MlaAttention(Stream& stream, const MlaAttentionArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.latent <= kLatentMax);
  for (int64_t r = 0; r < args.rows->count; ++r) {
    for (int64_t h = 0; h < args.heads; ++h) {
      if (args.kv.format == RowFormat::kBf16) {
        AttendHead<Bf16>(args, r, h);
      } else {
        AttendHead<float>(args, r, h);
      }
    }
  }
}

}  // namespace weir::kernels::ref
