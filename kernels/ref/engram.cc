// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/by_row.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {
namespace {

// ids[k] = compressed id k positions back, the pad from the first one on that is not there.
void LookBack(const EngramRowsArgs& args, int64_t r, int64_t* ids) {
  const int32_t position = I32(args.rows->position)[r];
  bool dead = false;
  for (int32_t k = 0; k < args.ngram; ++k) {
    dead = dead || k > position;
    int32_t id = -1;
    if (!dead) {
      id = LoadAs<int32_t>(RecentRow(*args.rows, args.id, args.history, r, position - k));
    }
    dead = dead || id < 0;
    ids[k] = dead ? args.pad : id;
  }
}

float TableAt(const Table& table, int64_t row, int64_t col) {
  const int64_t index = row * table.cols + col;
  switch (table.dtype) {
    case DType::kF32:
      return LoadAs<float>(As<const std::byte>(table.values) + index * 4);
    case DType::kBf16:
      return Bf16ToFloat(LoadAs<uint16_t>(As<const std::byte>(table.values) + index * 2));
    default:
      break;
  }
  WEIR_CHECK(table.dtype == DType::kF8E4m3 && table.scale_dtype == DType::kF8E8m0);
  const int64_t blocks = (table.cols + table.block_cols - 1) / table.block_cols;
  const uint8_t scale = As<const uint8_t>(table.scales)[row * blocks + col / table.block_cols];
  return F8E4m3ToFloat(As<const uint8_t>(table.values)[index]) * E8m0ToFloat(scale);
}

double RootMeanSquare(const float* x, int width, double eps) {
  return std::sqrt(Dot(x, x, width) / width + eps);
}

}  // namespace

void RefOps::EngramIds(Stream& stream, const EngramIdsArgs& args) const {
  const KernelScope scope(stream);
  for (int64_t r = 0; r < args.rows->count; ++r) {
    const int32_t token = I32(args.rows->token)[r];
    WEIR_CHECK(token >= 0 && token < args.map.shape[0]);
    I32(args.id)[r] = IsImage(*args.rows, r) ? -1 : I32(args.map)[token];
  }
}

void EngramRowsRow(const EngramRowsArgs& args, int64_t r) {
  const auto* multiplier = As<const int64_t>(args.multiplier.address);
  const int64_t columns = int64_t{args.ngram - 1} * args.heads;
  int64_t id[kNgramMax];
  LookBack(args, r, id);
  int64_t hash = id[0] * multiplier[0];
  for (int64_t column = 0; column < columns; ++column) {
    if (column % args.heads == 0) {
      const int64_t order = column / args.heads + 1;
      hash ^= id[order] * multiplier[order];
    }
    I32(args.row)
    [r * columns + column] =
        static_cast<int32_t>(hash % I32(args.prime)[column] + I32(args.offset)[column]);
  }
}

void RefOps::EngramRows(Stream& stream, const EngramRowsArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.ngram <= kNgramMax && args.history.row_bytes == sizeof(int32_t));
  for (int64_t r = 0; r < args.rows->count; ++r) EngramRowsRow(args, r);
}

void EngramGatherRow(const EngramGatherArgs& args, int64_t i, const Rounding& round) {
  const int64_t row = I32(args.row)[i];
  WEIR_CHECK(row >= 0 && row < args.table.rows);
  float* out = F32(args.out) + i * args.table.cols;
  for (int64_t col = 0; col < args.table.cols; ++col)
    out[col] = round(TableAt(args.table, row, col));
}

void RefOps::EngramGather(Stream& stream, const EngramGatherArgs& args) const {
  const KernelScope scope(stream);
  for (int64_t i = 0; i < int64_t{args.rows} * args.columns; ++i) EngramGatherRow(args, i, round_);
}

void RefOps::EngramGate(Stream& stream, const EngramGateArgs& args) const {
  const KernelScope scope(stream);
  const int64_t width = args.width;
  for (int64_t r = 0; r < args.rows->count; ++r) {
    if (IsImage(*args.rows, r)) continue;
    const float* keys = F32(args.kv) + r * (args.streams + 1) * width;
    const float* value = keys + args.streams * width;
    for (int64_t k = 0; k < args.streams; ++k) {
      float* x = F32(args.x) + (r * args.streams + k) * width;
      const float* key = keys + k * width;
      const float* q = F32(args.q_weight) + k * width;
      const float* w = F32(args.k_weight) + k * width;
      double dot = 0;
      for (int64_t d = 0; d < width; ++d) {
        dot += static_cast<double>(x[d]) * key[d] * (static_cast<double>(q[d]) * w[d]);
      }
      dot /= RootMeanSquare(x, args.width, args.eps) * RootMeanSquare(key, args.width, args.eps) *
             std::sqrt(static_cast<double>(width));
      const double root = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot);
      const double gate = 1.0 / (1.0 + std::exp(-root));
      for (int64_t d = 0; d < width; ++d) x[d] = round_(x[d] + gate * value[d]);
    }
  }
}

}  // namespace weir::kernels::ref
