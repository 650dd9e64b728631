// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "base/stdx/units.h"
#include "kernels/ref/access.h"
#include "kernels/ref/formats.h"

namespace weir::kernels::cpu {
namespace {

constexpr int kBlocks[] = {128, 64, 32};

// The outputs and inputs of one packed weight, in terms of what is stored: of every `group` stored
// rows, `width` from `first` on, either as outputs or, transposed, as inputs.
struct View {
  const HostMatrix& host;
  int64_t heads = 1;
  int64_t group = 0;
  int64_t first = 0;
  int64_t width = 0;
  bool transposed = false;

  int64_t outputs() const { return transposed ? host.cols : width; }  // of one head
  int64_t inputs() const { return transposed ? width : host.cols; }
  int64_t row(int64_t head, int64_t o, int64_t i) const {
    return head * group + first + (transposed ? i : o);
  }
  int64_t col(int64_t o, int64_t i) const { return transposed ? o : i; }
};

int64_t ScaleIndex(const HostMatrix& m, int64_t row, int64_t col) {
  return row / m.block_rows * CeilDiv(m.cols, m.block_cols) + col / m.block_cols;
}

float ScaleAt(const HostMatrix& m, int64_t index) {
  if (m.scale_dtype != DType::kF8E8m0) return LoadAs<float>(m.scales + index * 4);
  return ref::E8m0ToFloat(static_cast<uint8_t>(m.scales[index]));
}

// The exponent byte of a power of two, or -1.
int E8m0Of(float scale) {
  const auto bits = LoadAs<uint32_t>(&scale);
  return (bits & 0x807fffffu) == 0 && bits != 0 ? static_cast<int>(bits >> 23) : -1;
}

uint8_t F4At(const HostMatrix& m, int64_t row, int64_t col) {
  const int64_t index = row * m.cols + col;
  return static_cast<uint8_t>(m.values[index / 2]) >> (index % 2 * 4) & 15;
}

float ValueAt(const HostMatrix& m, int64_t row, int64_t col) {
  const int64_t index = row * m.cols + col;
  switch (m.dtype) {
    case DType::kBf16:
      return ref::Bf16ToFloat(LoadAs<uint16_t>(m.values + index * 2));
    case DType::kF8E4m3:
      return ref::F8E4m3ToFloat(static_cast<uint8_t>(m.values[index])) *
             ScaleAt(m, ScaleIndex(m, row, col));
    case DType::kI8:
      return ref::E2m1ToFloat(F4At(m, row, col)) * ScaleAt(m, ScaleIndex(m, row, col));
    default:
      return LoadAs<float>(m.values + index * 4);
  }
}

// Whether each run of `outputs` neighbouring outputs lies in one block of scales, and each run of
// `inputs` neighbouring inputs. Blocks are a grid, so both together mean one scale for all.
bool OutputsShare(const View& view, int64_t outputs) {
  const int64_t block = view.transposed ? view.host.block_cols : view.host.block_rows;
  for (int64_t head = 0; head < (view.transposed ? 1 : view.heads); ++head) {
    for (int64_t o = 0; o < view.outputs(); o += outputs) {
      const int64_t last = std::min(o + outputs, view.outputs()) - 1;
      const int64_t from = view.transposed ? o : view.row(head, o, 0);
      const int64_t to = view.transposed ? last : view.row(head, last, 0);
      if (from / block != to / block) return false;
    }
  }
  return true;
}

bool InputsShare(const View& view, int64_t inputs) {
  const int64_t block = view.transposed ? view.host.block_rows : view.host.block_cols;
  for (int64_t head = 0; head < (view.transposed ? view.heads : 1); ++head) {
    for (int64_t i = 0; i < view.inputs(); i += inputs) {
      const int64_t last = std::min(i + inputs, view.inputs()) - 1;
      const int64_t from = view.transposed ? view.row(head, 0, i) : i;
      const int64_t to = view.transposed ? view.row(head, 0, last) : last;
      if (from / block != to / block) return false;
    }
  }
  return true;
}

// The longest chain over which `outputs` neighbours share their scales, or 0.
int ChainOf(const View& view, int64_t outputs) {
  if (!OutputsShare(view, outputs)) return 0;
  for (const int block : kBlocks) {
    if (InputsShare(view, block)) return block;
  }
  return 0;
}

bool ScalesArePowers(const HostMatrix& m) {
  if (m.scale_dtype == DType::kF8E8m0) return true;
  const int64_t count = CeilDiv(m.rows, m.block_rows) * CeilDiv(m.cols, m.block_cols);
  for (int64_t i = 0; i < count; ++i) {
    if (E8m0Of(ScaleAt(m, i)) < 0) return false;
  }
  return true;
}

// Chooses storage, scales and chain; F32 always fits.
void Choose(const View& view, Packed* w) {
  const HostMatrix& m = view.host;
  w->storage = Storage::kF32;
  w->scale_kind = Scales::kNone;
  w->block = kBlockMax;
  if (m.dtype == DType::kBf16 && view.inputs() % 2 == 0) w->storage = Storage::kBf16;
  if (m.dtype == DType::kF8E4m3) {
    if (const int block = ChainOf(view, kTile); block > 0) {
      w->storage = Storage::kF8;
      w->scale_kind = Scales::kPerBlock;
      w->block = block;
      return;
    }
  }
  const bool codes = m.dtype == DType::kF8E4m3 ||
                     (m.dtype == DType::kI8 && !view.transposed && view.inputs() % 8 == 0);
  if (!codes || !ScalesArePowers(m)) return;
  if (const int block = ChainOf(view, 1); block > 0) {
    w->storage = m.dtype == DType::kI8 ? Storage::kF4 : Storage::kF8;
    w->scale_kind = Scales::kPerOutput;
    w->block = block;
  }
}

size_t Plan(const View& view, Packed* w) {
  Choose(view, w);
  const StoredShape& shape = kStoredShape[static_cast<int>(w->storage)];
  const int64_t head_tiles = CeilDiv<int64_t>(view.outputs(), kTile);
  w->cols = view.inputs();
  w->tiles = view.heads * head_tiles;
  w->rows = view.heads > 1 ? w->tiles * kTile : view.outputs();
  w->tile_bytes = AlignUp<int64_t>(CeilDiv<int64_t>(w->cols, shape.inputs) * shape.bytes, 64);
  const int64_t blocks = CeilDiv<int64_t>(w->cols, w->block);
  w->scale_tile_bytes = w->scale_kind == Scales::kPerBlock    ? blocks * 4
                        : w->scale_kind == Scales::kPerOutput ? blocks * kTile
                                                              : 0;
  return AlignUp<size_t>(static_cast<size_t>(w->tiles * (w->tile_bytes + w->scale_tile_bytes)), 64);
}

// The two halves of kv_b, or the weight as it is. `part` is 0 or 1.
View ViewOf(const HostMatrix& host, int part) {
  const int64_t group = host.head_transposed + host.head_plain;
  if (group == 0) return {host, 1, host.rows, 0, host.rows, false};
  const int64_t heads = host.rows / group;
  if (part == 0) return {host, heads, group, 0, host.head_transposed, true};
  return {host, heads, group, host.head_transposed, host.head_plain, false};
}

bool PackScales(const View& view, const Packed& w, int64_t head, int64_t o, uint8_t* to) {
  const HostMatrix& m = view.host;
  const int64_t wide = std::min<int64_t>(kTile, view.outputs() - o);
  for (int64_t i = 0; i < w.cols; i += w.block) {
    if (w.scale_kind == Scales::kPerBlock) {
      const float scale = ScaleAt(m, ScaleIndex(m, view.row(head, o, i), view.col(o, i)));
      if (std::isnan(scale)) return false;
      std::memcpy(to, &scale, 4);
      to += 4;
      continue;
    }
    for (int64_t k = 0; k < kTile; ++k, ++to) {
      *to = 0;
      if (k >= wide) continue;
      const int64_t index = ScaleIndex(m, view.row(head, o + k, i), view.col(o + k, i));
      const float scale = ScaleAt(m, index);
      if (std::isnan(scale)) return false;
      // Byte 0, which is 2^-127, weighs nothing here.
      *to = m.scale_dtype == DType::kF8E8m0 ? static_cast<uint8_t>(m.scales[index])
                                            : static_cast<uint8_t>(E8m0Of(scale));
    }
  }
  return true;
}

bool PackCodes(const View& view, const Packed& w, const uint8_t* order, int64_t head, int64_t o,
               uint8_t* to) {
  const HostMatrix& m = view.host;
  const int64_t wide = std::min<int64_t>(kTile, view.outputs() - o);
  std::memset(to, 0, static_cast<size_t>(w.tile_bytes));
  bool good = true;
  for (int64_t k = 0; k < wide; ++k) {
    for (int64_t i = 0; i < w.cols; ++i) {
      const int64_t row = view.row(head, o + k, i);
      const int64_t col = view.col(o + k, i);
      switch (w.storage) {
        case Storage::kF32:
          StoreAs(to + (i * kTile + k) * 4, ValueAt(m, row, col));
          break;
        case Storage::kBf16:
          std::memcpy(to + (i / 2 * kTile + k) * 4 + i % 2 * 2, m.values + (row * m.cols + col) * 2,
                      2);
          break;
        case Storage::kF8: {
          const auto code = static_cast<uint8_t>(m.values[row * m.cols + col]);
          good = good && (code & 127) != 127;
          to[i * kTile + (order == nullptr ? k : order[k])] = code;
          break;
        }
        case Storage::kF4:
          to[(i / 8 * kTile + k) * 4 + i % 8 / 2] |=
              static_cast<uint8_t>(F4At(m, row, col) << (i % 2 * 4));
          break;
      }
    }
  }
  return good;
}

}  // namespace

absl::StatusOr<MatrixPlan> PlanMatrix(const HostMatrix& host, const uint8_t* byte_of_output) {
  const bool known = host.dtype == DType::kF32 || host.dtype == DType::kBf16 ||
                     host.dtype == DType::kF8E4m3 || host.dtype == DType::kI8;
  if (!known) {
    return Error(Reason::kBadField,
                 absl::StrCat("a weight of dtype ", AbslView(DTypeName(host.dtype)),
                              " has no place in the CPU backend"));
  }
  MatrixPlan plan;
  plan.byte_of_output = byte_of_output;
  const View first = ViewOf(host, 0);
  plan.bytes[0] = Plan(first, &plan.packed.whole);
  if (host.head_transposed + host.head_plain > 0) {
    const View second = ViewOf(host, 1);
    plan.bytes[1] = Plan(second, &plan.packed.second);
    plan.packed.head_tiles[0] = plan.packed.whole.tiles / first.heads;
    plan.packed.head_tiles[1] = plan.packed.second.tiles / second.heads;
  }
  return plan;
}

bool PackTile(const HostMatrix& host, const MatrixPlan& plan, int64_t tile) {
  const int part = tile < plan.packed.whole.tiles ? 0 : 1;
  const Packed& w = part == 0 ? plan.packed.whole : plan.packed.second;
  if (part == 1) tile -= plan.packed.whole.tiles;
  const View view = ViewOf(host, part);
  const int64_t head_tiles = w.tiles / view.heads;
  const int64_t head = tile / head_tiles;
  const int64_t o = tile % head_tiles * kTile;
  // Ours to write until the weight is handed out.
  auto* codes = const_cast<uint8_t*>(w.codes) + tile * w.tile_bytes;
  auto* scales = const_cast<uint8_t*>(w.scales) + tile * w.scale_tile_bytes;
  const bool good_codes = PackCodes(view, w, plan.byte_of_output, head, o, codes);
  return (w.scale_kind == Scales::kNone || PackScales(view, w, head, o, scales)) && good_codes;
}

}  // namespace weir::kernels::cpu
