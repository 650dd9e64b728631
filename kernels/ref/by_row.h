// SPDX-License-Identifier: Apache-2.0
//
// One row of the operations that keep a token: what the reference does for each row in turn, and
// other backends on the host on threads of their own, where only the packing of a row is theirs.
// Rows do not touch each other's results. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/op/compress.h"
#include "kernels/op/engram.h"
#include "kernels/op/rope.h"
#include "kernels/ref/access.h"
#include "kernels/ref/rotary.h"

namespace weir::kernels::ref {

inline bool IsImage(const StepRows& rows, int64_t r) {
  return !rows.image.empty() && I32(rows.image)[r] != 0;
}

void IndexRotateRow(const IndexRotateArgs& args, int64_t r, const Rounding& round);
void RingWriteRow(const RingWriteArgs& args, int64_t r);
void CompressPairRow(const CompressPairArgs& args, int64_t r, const Rounding& round);
void EngramRowsRow(const EngramRowsArgs& args, int64_t r);
// Table row `i` of args.rows * args.columns, in any of the table's formats.
void EngramGatherRow(const EngramGatherArgs& args, int64_t i, const Rounding& round);

// encode(format, values, width, to) packs a row; `row` is room for `width` values.
template <class Encode>
void WindowRow(const WindowRowsArgs& args, int64_t r, const Rounding& round, float* row,
               const Encode& encode) {
  const auto bytes = static_cast<int64_t>(RowBytes(args.format, static_cast<size_t>(args.width)));
  NormRow(F32(args.kv) + r * args.width, args.width, args.eps, F32(args.norm_weight), row, round);
  RotateTail(row, args.width, args.rope, F32(args.frequency), I32(args.rows->position)[r], round);
  encode(args.format, row, args.width, As<std::byte>(args.fresh.address) + r * bytes);
}

template <class Encode>
void EntryWriteRow(const EntryWriteArgs& args, int64_t r, const Rounding& round, float* row,
                   const Encode& encode) {
  const PagedKv& store = args.store;
  const int32_t position = I32(args.rows->position)[r];
  if ((position + 1) % store.ratio != 0 || position < I32(args.rows->write_floor)[r]) return;
  const float* x = F32(args.x) + r * args.width;
  if (args.norm_weight.empty()) {
    std::copy_n(x, args.width, row);
  } else {
    NormRow(x, args.width, args.eps, F32(args.norm_weight), row, round);
  }
  RotateTail(row, args.width, args.rope, F32(args.frequency), position + 1 - store.ratio, round);
  encode(store.format, row, args.width,
         As<std::byte>(KvRow(store, I32(args.rows->sequence)[r], position)));
}

}  // namespace weir::kernels::ref
