// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/mla_keys.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {
namespace {

constexpr int kLatentMax = 4096;

struct Bf16 {
  uint16_t bits;
  explicit operator double() const { return Bf16ToFloat(bits); }
};

// One head of one row: scores and softmax over its keys in ascending order, then the mean latent.
template <class Kv>
void AttendHead(const MlaAttentionArgs& args, int64_t r, int64_t h, const Rounding& round) {
  const int32_t sequence = I32(args.rows->sequence)[r];
  const MlaKeys keys(args, r);
  const float* q_latent = F32(args.q_latent) + (r * args.heads + h) * args.latent;
  const float* q_rope = F32(args.q) + (r * args.heads + h) * (args.nope + args.rope) + args.nope;
  double* score = As<double>(args.scores.address);
  double top = -HUGE_VAL;
  for (int32_t t = 0; t < keys.count(); ++t) {
    const Kv* row = As<const Kv>(KvRow(args.kv, sequence, keys[t]));
    const double dot = Dot(q_latent, row, args.latent) + Dot(q_rope, row + args.latent, args.rope);
    score[t] = dot * args.scale;
    top = std::max(top, score[t]);
  }
  double total = 0;
  for (int32_t t = 0; t < keys.count(); ++t) total += score[t] = std::exp(score[t] - top);
  double sum[kLatentMax];
  std::fill_n(sum, args.latent, 0.0);
  for (int32_t t = 0; t < keys.count(); ++t) {
    const double weight = round.on() ? round(score[t] / total) * total : score[t];
    const Kv* row = As<const Kv>(KvRow(args.kv, sequence, keys[t]));
    for (int j = 0; j < args.latent; ++j) sum[j] += weight * static_cast<double>(row[j]);
  }
  float* out = F32(args.out) + (r * args.heads + h) * args.latent;
  for (int j = 0; j < args.latent; ++j) out[j] = static_cast<float>(sum[j] / total);
}

constexpr int kKeysMax = 4096;

// Decodes the rows that row r attends to, window first, and returns how many there are.
int GatherKeys(const SparseAttentionArgs& args, int64_t r) {
  const int32_t position = I32(args.rows->position)[r];
  const int32_t sequence = I32(args.rows->sequence)[r];
  const int32_t reach = std::max(position - args.window + 1, 0);
  float* to = F32(args.scratch);
  int count = 0;
  for (int32_t at = std::max(reach, I32(args.rows->visible_from)[r]); at <= position; ++at) {
    const std::byte* row = RecentRow(*args.rows, args.fresh, args.ring, r, at);
    DecodeRow(args.ring.format, row, args.width, to + int64_t{count++} * args.width);
  }
  const int32_t* entry = I32(args.selected) + r * args.select;
  for (int i = 0; i < args.select && entry[i] >= 0; ++i) {
    const DeviceAddress row = KvRow(args.entries, sequence, entry[i] * args.entries.ratio);
    DecodeRow(args.entries.format, As<const std::byte>(row), args.width,
              to + int64_t{count++} * args.width);
  }
  return count;
}

void AttendSparse(const SparseAttentionArgs& args, int64_t r, int64_t h, int keys,
                  const Rounding& round) {
  const float* q = F32(args.q) + (r * args.heads + h) * args.width;
  const float* key = F32(args.scratch);
  double score[kKeysMax];
  double top = -HUGE_VAL;
  for (int64_t t = 0; t < keys; ++t) {
    score[t] = Dot(q, key + t * args.width, args.width) * args.scale;
    top = std::max(top, score[t]);
  }
  double total = 0;
  double sum[kLatentMax];
  std::fill_n(sum, args.width, 0.0);
  for (int64_t t = 0; t < keys; ++t) {
    double weight = std::exp(score[t] - top);
    total += weight;
    if (round.on()) weight = round(weight);  // the numerator alone
    for (int64_t j = 0; j < args.width; ++j) sum[j] += weight * key[t * args.width + j];
  }
  total += std::exp(F32(args.sink)[h] - top);
  float* out = F32(args.out) + (r * args.heads + h) * args.width;
  for (int64_t j = 0; j < args.width; ++j) out[j] = round(sum[j] / total);
}

}  // namespace

void RefOps::SparseAttention(Stream& stream, const SparseAttentionArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.width <= kLatentMax && args.window + args.select <= kKeysMax);
  for (int64_t r = 0; r < args.rows->count; ++r) {
    const int keys = GatherKeys(args, r);
    for (int64_t h = 0; h < args.heads; ++h) AttendSparse(args, r, h, keys, round_);
  }
}

void RefOps::MlaAttention(Stream& stream, const MlaAttentionArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.latent <= kLatentMax);
  for (int64_t r = 0; r < args.rows->count; ++r) {
    for (int64_t h = 0; h < args.heads; ++h) {
      if (args.kv.format == RowFormat::kBf16) {
        AttendHead<Bf16>(args, r, h, round_);
      } else {
        AttendHead<float>(args, r, h, round_);
      }
    }
  }
}

}  // namespace weir::kernels::ref
