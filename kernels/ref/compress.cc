// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "base/stdx/check.h"
#include "kernels/ref/access.h"
#include "kernels/ref/by_row.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/ref_ops.h"
#include "kernels/ref/rotary.h"

namespace weir::kernels::ref {
namespace {

constexpr int kWidthMax = 4096;

// A value of a carried row: rows may lie at any address.
double ValueAt(const std::byte* row, int64_t index) {
  float value = 0;
  std::memcpy(&value, row + index * 4, sizeof(value));
  return value;
}

}  // namespace

void RingWriteRow(const RingWriteArgs& args, int64_t r) {
  const int32_t* sequence = I32(args.rows->sequence);
  const RingKv& ring = args.ring;
  const int64_t heir = r + ring.ring_rows;
  if (heir < args.rows->count && sequence[heir] == sequence[r]) return;
  std::memcpy(As<void>(RingRow(ring, sequence[r], I32(args.rows->position)[r])),
              As<const std::byte>(args.fresh.address) + r * ring.row_bytes,
              static_cast<size_t>(ring.row_bytes));
}

void CompressPairRow(const CompressPairArgs& args, int64_t r, const Rounding& round) {
  float* latent = F32(args.latent) + r * args.width;
  std::memset(latent, 0, static_cast<size_t>(args.width) * sizeof(float));
  const int32_t position = I32(args.rows->position)[r];
  if (position % 2 == 0) return;
  const std::byte* kv = RecentRow(*args.rows, args.kv, args.kv_carry, r, position - 1);
  const std::byte* gate = RecentRow(*args.rows, args.gate, args.gate_carry, r, position - 1);
  for (int64_t i = 0; i < args.width; ++i) {
    const double first = ValueAt(gate, i);
    const double second = F32(args.gate)[r * args.width + i];
    // A softmax of two is a sigmoid of their difference.
    const double share = 1.0 / (1.0 + std::exp(first - second));
    latent[i] = round(ValueAt(kv, i) * (1.0 - share) + F32(args.kv)[r * args.width + i] * share);
  }
  NormRow(latent, args.width, args.eps, F32(args.norm_weight), latent, round);
}

void RefOps::WindowRows(Stream& stream, const WindowRowsArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.width <= kWidthMax);
  float row[kWidthMax];
  for (int64_t r = 0; r < args.rows->count; ++r) WindowRow(args, r, round_, row, EncodeRow);
}

void RefOps::RingWrite(Stream& stream, const RingWriteArgs& args) const {
  const KernelScope scope(stream);
  for (int64_t r = 0; r < args.rows->count; ++r) RingWriteRow(args, r);
}

void RefOps::CompressPair(Stream& stream, const CompressPairArgs& args) const {
  const KernelScope scope(stream);
  for (int64_t r = 0; r < args.rows->count; ++r) CompressPairRow(args, r, round_);
}

void RefOps::EntryWrite(Stream& stream, const EntryWriteArgs& args) const {
  const KernelScope scope(stream);
  WEIR_CHECK(args.width <= kWidthMax);
  float row[kWidthMax];
  for (int64_t r = 0; r < args.rows->count; ++r) EntryWriteRow(args, r, round_, row, EncodeRow);
}

void RefOps::RoundTrip(Stream& stream, const RoundTripArgs& args) const {
  const KernelScope scope(stream);
  if (args.format == RowFormat::kF32) return;
  std::byte row[kWidthMax * 4];
  WEIR_CHECK(args.width <= kWidthMax);
  for (int64_t r = 0; r < args.rows; ++r) {
    float* x = F32(args.x) + r * args.width;
    EncodeRow(args.format, x, args.width, row);
    DecodeRow(args.format, row, args.width, x);
  }
}

}  // namespace weir::kernels::ref
