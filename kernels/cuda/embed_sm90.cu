// SPDX-License-Identifier: Apache-2.0
//
// What is looked up: embeddings, rows by index, and Engram's table rows with the ids that name
// them. A block a row; nothing is summed.
#include "base/stdx/check.h"
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowThreads = 32;

// Four neighbours of a table's row.
__device__ __forceinline__ float4 FourOf(const unsigned char* table, bool bf16, int64_t vector) {
  if (!bf16) return dev::Load(reinterpret_cast<const float4*>(table) + vector);
  const uint2 packed = dev::Load(reinterpret_cast<const uint2*>(table) + vector);
  return make_float4(dev::BitsToFloat(packed.x << 16), dev::BitsToFloat(packed.x & 0xffff0000u),
                     dev::BitsToFloat(packed.y << 16), dev::BitsToFloat(packed.y & 0xffff0000u));
}

// With `pre` the row goes to every stream, and pre = (1, 0, 0, ...).
__global__ void __launch_bounds__(kThreads)
    EmbedKernel(const int32_t* token, const unsigned char* table, bool bf16, float* out, float* pre,
                int streams, int vectors) {
  const int64_t row = blockIdx.x;
  const int64_t from = static_cast<int64_t>(token[row]) * vectors;
  auto* to = reinterpret_cast<float4*>(out) + row * streams * vectors;
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
    const float4 x = FourOf(table, bf16, from + i);
    for (int k = 0; k < streams; ++k) dev::Store(to + static_cast<int64_t>(k) * vectors + i, x);
  }
  const int t = static_cast<int>(threadIdx.x);
  if (pre != nullptr && t < streams) pre[row * streams + t] = t == 0 ? 1.0f : 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    GatherRowsKernel(const uint32_t* x, const int32_t* index, uint32_t* out, int width) {
  const int64_t row = blockIdx.x;
  const int64_t from = static_cast<int64_t>(index[row]) * width;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    dev::Store(out + row * width + i, dev::Load(x + from + i));
  }
}

__global__ void __launch_bounds__(kThreads)
    EngramIdsKernel(const int32_t* token, const int32_t* image, const int32_t* map, int32_t* id,
                    int rows) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row >= rows) return;
  id[row] = image != nullptr && image[row] != 0 ? -1 : map[token[row]];
}

struct HashParams {
  const int32_t* position;
  const int32_t* sequence;
  const int32_t* fresh_from;
  const int32_t* id;
  RingView history;
  const int64_t* multiplier;
  const int32_t* prime;
  const int32_t* offset;
  int32_t* row;
  int ngram;
  int heads;
  int32_t pad;
};

// A thread a column, which looks back as far as its order goes.
__global__ void __launch_bounds__(kRowThreads) EngramRowsKernel(const HashParams p) {
  const int r = static_cast<int>(blockIdx.x);
  const int columns = (p.ngram - 1) * p.heads;
  const int position = p.position[r];
  const int sequence = p.sequence[r];
  for (int column = static_cast<int>(threadIdx.x); column < columns; column += kRowThreads) {
    int64_t hash = 0;
    bool dead = false;
    for (int k = 0; k <= column / p.heads + 1; ++k) {
      const int at = position - k;
      dead = dead || at < 0;
      int32_t id = -1;
      if (!dead) {
        id = at >= p.fresh_from[r]
                 ? p.id[r - k]
                 : *reinterpret_cast<const int32_t*>(RowAt(p.history, sequence, at));
      }
      dead = dead || id < 0;
      hash ^= static_cast<int64_t>(dead ? p.pad : id) * p.multiplier[k];
    }
    p.row[static_cast<int64_t>(r) * columns + column] =
        static_cast<int32_t>(hash % p.prime[column] + p.offset[column]);
  }
}

// FP8 values, a power of two for 32.
__global__ void __launch_bounds__(kRowThreads)
    EngramGatherKernel(const int32_t* row, const unsigned char* values, const unsigned char* scales,
                       float* out, int width) {
  const int64_t i = blockIdx.x;
  const int64_t from = row[i];
  for (int v = static_cast<int>(threadIdx.x); v < width / 4; v += kRowThreads) {
    const uint32_t packed = dev::Load(reinterpret_cast<const uint32_t*>(values + from * width) + v);
    const float scale = PowerOfTwo(scales[from * (width / 32) + v / 8]);
    const auto value = [&](int e) {
      return dev::E4m3ToFloat(static_cast<uint8_t>(packed >> (e * 8))) * scale;
    };
    dev::Store(reinterpret_cast<float4*>(out + i * width) + v,
               make_float4(value(0), value(1), value(2), value(3)));
  }
}

void Embed(const Queue& queue, const StepRows& rows, const Tensor& table, const Tensor& out,
           const Tensor& pre, int streams) {
  const bool bf16 = table.dtype == DType::kBf16;
  const auto width = static_cast<int>(table.shape[1]);
  WEIR_CHECK((bf16 || table.dtype == DType::kF32) && width % 4 == 0);
  if (rows.count == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(rows.count)), dim3(kThreads), 0, EmbedKernel,
         As<const int32_t>(rows.token), As<const unsigned char>(table), bf16, As<float>(out),
         As<float>(pre), streams, width / 4);
}

}  // namespace

void Embed(const Queue& queue, const EmbedArgs& args) {
  Embed(queue, *args.rows, args.table, args.out, Tensor(), 1);
}

void EmbedStreams(const Queue& queue, const EmbedStreamsArgs& args) {
  Embed(queue, *args.rows, args.table, args.x, args.pre, args.streams);
}

void GatherRows(const Queue& queue, const GatherRowsArgs& args) {
  if (args.count == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(args.count)), dim3(kThreads), 0, GatherRowsKernel,
         As<const uint32_t>(args.x), As<const int32_t>(args.index), As<uint32_t>(args.out),
         args.width);
}

void EngramIds(const Queue& queue, const EngramIdsArgs& args) {
  const int rows = args.rows->count;
  if (rows == 0) return;
  Launch(queue, dim3(static_cast<unsigned>((rows + kThreads - 1) / kThreads)), dim3(kThreads), 0,
         EngramIdsKernel, As<const int32_t>(args.rows->token), As<const int32_t>(args.rows->image),
         As<const int32_t>(args.map), As<int32_t>(args.id), rows);
}

void EngramRows(const Queue& queue, const EngramRowsArgs& args) {
  const RingKv& ring = args.history;
  WEIR_CHECK(args.ngram <= kNgramMax && ring.row_bytes == sizeof(int32_t));
  WEIR_CHECK(ring.state_bytes % 4 == 0 && ring.layer_offset % 4 == 0);
  if (args.rows->count == 0) return;
  const HashParams p = {As<const int32_t>(args.rows->position),
                        As<const int32_t>(args.rows->sequence),
                        As<const int32_t>(args.rows->fresh_from),
                        As<const int32_t>(args.id),
                        ViewOf(ring),
                        As<const int64_t>(args.multiplier),
                        As<const int32_t>(args.prime),
                        As<const int32_t>(args.offset),
                        As<int32_t>(args.row),
                        args.ngram,
                        args.heads,
                        args.pad};
  Launch(queue, dim3(static_cast<unsigned>(args.rows->count)), dim3(kRowThreads), 0,
         EngramRowsKernel, p);
}

void EngramGather(const Queue& queue, const EngramGatherArgs& args) {
  const Table& table = args.table;
  WEIR_CHECK(table.dtype == DType::kF8E4m3 && table.scale_dtype == DType::kF8E8m0);
  WEIR_CHECK(table.block_cols == 32 && table.cols % 32 == 0);
  const int rows = args.rows * args.columns;
  if (rows == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(rows)), dim3(kRowThreads), 0, EngramGatherKernel,
         As<const int32_t>(args.row), As<const unsigned char>({table.values, DType::kU8, {}}),
         As<const unsigned char>({table.scales, DType::kU8, {}}), As<float>(args.out),
         static_cast<int>(table.cols));
}

}  // namespace weir::kernels::cuda
