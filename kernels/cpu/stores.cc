// SPDX-License-Identifier: Apache-2.0
//
// What a token leaves in the stores, row by row on the pool: the reference's arithmetic, because
// what is kept for later should not depend on the backend, around packing and expanding in
// registers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/stdx/check.h"
#include "kernels/cpu/run.h"
#include "kernels/cpu/store_rows.h"
#include "kernels/ref/by_row.h"

namespace weir::kernels::cpu {
namespace {

using ref::As;
using ref::F32;
using ref::I32;

const ref::Rounding kNoRounding(false);

constexpr int64_t kRowsAtOnce = 8;

auto EncoderOf(const KernelTable& kernels) {
  return [&kernels](RowFormat format, const float* x, int width, std::byte* to) {
    EncodeStoreRow(kernels, format, x, width, to);
  };
}

void CheckWidth(int64_t width) {
  WEIR_CHECK(static_cast<size_t>(width) * sizeof(float) <= kThreadScratch / 2);
}

}  // namespace

void RunWindowRows(const KernelTable& kernels, Team& team, const WindowRowsArgs& args) {
  CheckWidth(args.width);
  team.For(args.rows->count, kRowsAtOnce, [&](const Team::Part& part, int64_t r) {
    ref::WindowRow(args, r, kNoRounding, reinterpret_cast<float*>(part.scratch),
                   EncoderOf(kernels));
  });
}

void RunEntryWrite(const KernelTable& kernels, Team& team, const EntryWriteArgs& args) {
  CheckWidth(args.width);
  team.For(args.rows->count, kRowsAtOnce, [&](const Team::Part& part, int64_t r) {
    ref::EntryWriteRow(args, r, kNoRounding, reinterpret_cast<float*>(part.scratch),
                       EncoderOf(kernels));
  });
}

void RunIndexRotate(const KernelTable&, Team& team, const IndexRotateArgs& args) {
  team.For(args.rows->count, 1,
           [&](const Team::Part&, int64_t r) { ref::IndexRotateRow(args, r, kNoRounding); });
}

void RunRingWrite(const KernelTable&, Team& team, const RingWriteArgs& args) {
  team.For(args.rows->count, 8 * kRowsAtOnce,
           [&](const Team::Part&, int64_t r) { ref::RingWriteRow(args, r); });
}

void RunCompressPair(const KernelTable&, Team& team, const CompressPairArgs& args) {
  team.For(args.rows->count, kRowsAtOnce,
           [&](const Team::Part&, int64_t r) { ref::CompressPairRow(args, r, kNoRounding); });
}

void RunRoundTrip(const KernelTable& kernels, Team& team, const RoundTripArgs& args) {
  if (args.format == RowFormat::kF32) return;
  CheckWidth(args.width);
  team.For(args.rows, 2 * kRowsAtOnce, [&](const Team::Part& part, int64_t r) {
    float* x = F32(args.x) + r * args.width;
    EncodeStoreRow(kernels, args.format, x, args.width, part.scratch);
    DecodeStoreRow(kernels, args.format, part.scratch, args.width, x);
  });
}

void RunGatherRows(const KernelTable&, Team& team, const GatherRowsArgs& args) {
  const int64_t width = args.width;
  team.For(args.count, kRowsAtOnce, [&](const Team::Part&, int64_t i) {
    std::memcpy(F32(args.out) + i * width, F32(args.x) + I32(args.index)[i] * width,
                static_cast<size_t>(width) * sizeof(float));
  });
}

void RunEngramRows(const KernelTable&, Team& team, const EngramRowsArgs& args) {
  WEIR_CHECK(args.ngram <= kNgramMax && args.history.row_bytes == sizeof(int32_t));
  team.For(args.rows->count, 2 * kRowsAtOnce,
           [&](const Team::Part&, int64_t r) { ref::EngramRowsRow(args, r); });
}

void RunEngramGather(const KernelTable& kernels, Team& team, const EngramGatherArgs& args) {
  const Table& table = args.table;
  const bool packed = table.dtype == DType::kF8E4m3 && table.scale_dtype == DType::kF8E8m0 &&
                      table.block_cols == 32 && table.cols % 32 == 0;
  team.For(int64_t{args.rows} * args.columns, kRowsAtOnce, [&](const Team::Part&, int64_t i) {
    if (!packed) return ref::EngramGatherRow(args, i, kNoRounding);
    const int64_t row = I32(args.row)[i];
    WEIR_CHECK(row >= 0 && row < table.rows);
    kernels.decode_fp8_block32(As<const uint8_t>(table.values) + row * table.cols,
                               As<const uint8_t>(table.scales) + row * (table.cols / 32),
                               static_cast<int>(table.cols), F32(args.out) + i * table.cols);
  });
}

void RunEngramGate(const KernelTable& kernels, Team& team, const EngramGateArgs& args) {
  const int64_t width = args.width;
  const int64_t streams = args.streams;
  team.For(args.rows->count * streams, 2, [&](const Team::Part&, int64_t index) {
    const int64_t r = index / streams;
    const int64_t k = index % streams;
    if (ref::IsImage(*args.rows, r)) return;
    const float* keys = F32(args.kv) + r * (streams + 1) * width;
    const float* key = keys + k * width;
    float* x = F32(args.x) + index * width;
    const double mean = 1.0 / static_cast<double>(width);
    const double size = (kernels.sum_of_squares(x, width) * mean + double{args.eps}) *
                        (kernels.sum_of_squares(key, width) * mean + double{args.eps});
    const double product = kernels.dot_of_products(x, key, F32(args.q_weight) + k * width,
                                                   F32(args.k_weight) + k * width, width);
    const double dot = product / (std::sqrt(size) * std::sqrt(static_cast<double>(width)));
    const double root = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot);
    kernels.axpy(x, static_cast<float>(1.0 / (1.0 + std::exp(-root))), keys + streams * width,
                 width);
  });
}

}  // namespace weir::kernels::cpu
