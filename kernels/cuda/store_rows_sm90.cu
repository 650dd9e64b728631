// SPDX-License-Identifier: Apache-2.0
//
// What V4.1 keeps of a token: window rows and compressed entries, normed, rotated and packed to FP8
// or FP4 in one pass, a block a row; the copy of a step's rows to the ring; the compressor's pairs;
// and the index query's round trip. Norm and rotation are F64, so that codes fall as they do in the
// reference.
#include "base/stdx/check.h"
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rotate.cuh"
#include "kernels/cuda/rows.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWidthMax = 1024;
constexpr int kPer = 4;  // neighbours that a thread packs

struct RowShared {
  float row[kWidthMax];
  double partial[kThreads / 32];
};

// What makes a row of F32 values.
struct RowSource {
  const float* x;
  const float* weight;  // null: no norm
  const float* frequency;
  int width;
  int rope;
  float eps;
};

struct Scale {
  uint32_t byte;
  float value;
};

// Of the block that a thread's neighbours lie in, with lanes beside it.
__device__ __forceinline__ Scale ScaleOf(RowFormat format, const float4& x) {
  float amax = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
  amax = fmaxf(amax, __shfl_xor_sync(dev::kAllLanes, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(dev::kAllLanes, amax, 2));
  if (format == RowFormat::kFp4Block16) {
    const uint32_t byte = dev::FloatToE4m3(fmaxf(amax, 6 * 0x1p-9f) / 6.0f);
    return {byte, dev::E4m3ToFloat(static_cast<uint8_t>(byte))};
  }
  amax = fmaxf(amax, __shfl_xor_sync(dev::kAllLanes, amax, 4));
  const float least = format == RowFormat::kFp8Block32 ? fmaxf(amax, 1e-4f) * (1.0f / 448)
                                                       : fmaxf(amax, 6 * 0x1p-126f) * (1.0f / 6);
  const uint32_t byte = E8m0CeilOf(least);
  return {byte, PowerOfTwo(byte)};
}

__device__ __forceinline__ uint32_t CodeOf(bool fp8, float value) {
  return fp8 ? dev::FloatToE4m3(value) : FloatToE2m1(value);
}

// Packs s.row to `to`: its values, then its scales.
__device__ __forceinline__ void PackRow(const RowShared& s, int width, RowFormat format,
                                        unsigned char* to) {
  const bool fp8 = format == RowFormat::kFp8Block32;
  const int block = format == RowFormat::kFp4Block16 ? 16 : 32;
  for (int base = 0; base < width; base += kThreads * kPer) {
    const int i = base + static_cast<int>(threadIdx.x) * kPer;
    float4 x = make_float4(0, 0, 0, 0);
    if (i < width) x = dev::Load(reinterpret_cast<const float4*>(&s.row[i]));
    const Scale scale = ScaleOf(format, x);
    if (i >= width) continue;
    const uint32_t code[kPer] = {CodeOf(fp8, x.x / scale.value), CodeOf(fp8, x.y / scale.value),
                                 CodeOf(fp8, x.z / scale.value), CodeOf(fp8, x.w / scale.value)};
    if (fp8) {
      dev::Store(reinterpret_cast<uint32_t*>(to + i),
                 code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24);
    } else {
      dev::Store(reinterpret_cast<uint16_t*>(to + i / 2),
                 static_cast<uint16_t>(code[0] | code[1] << 4 | code[2] << 8 | code[3] << 12));
    }
    if (i % block == 0) {
      to[(fp8 ? width : width / 2) + i / block] = static_cast<unsigned char>(scale.byte);
    }
  }
}

// s.row = rotate(norm(x) * weight), whole after a barrier of the caller.
__device__ __forceinline__ void MakeRow(RowShared& s, const RowSource& from, int64_t r,
                                        int position) {
  const float* x = from.x + r * from.width;
  double inverse = 1;
  if (from.weight != nullptr) {
    double sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < from.width; i += kThreads) {
      sum += static_cast<double>(x[i]) * x[i];
    }
    inverse = 1.0 / sqrt(BlockSum(sum, s.partial) / from.width + from.eps);
  }
  for (int i = static_cast<int>(threadIdx.x) * 2; i < from.width; i += kThreads * 2) {
    float2 pair = dev::Load(reinterpret_cast<const float2*>(x + i));
    if (from.weight != nullptr) {
      const float2 w = dev::Load(reinterpret_cast<const float2*>(from.weight + i));
      pair = make_float2(static_cast<float>(pair.x * inverse * w.x),
                         static_cast<float>(pair.y * inverse * w.y));
    }
    const int turned = i - (from.width - from.rope);
    if (turned >= 0) {
      const Turn turn = TurnOf(position, from.frequency[turned / 2]);
      pair = make_float2(static_cast<float>(pair.x * turn.cosine - pair.y * turn.sine),
                         static_cast<float>(pair.x * turn.sine + pair.y * turn.cosine));
    }
    dev::Store(reinterpret_cast<float2*>(&s.row[i]), pair);
  }
}

__global__ void __launch_bounds__(kThreads)
    WindowRowsKernel(const int32_t* position, const RowSource from, RowFormat format,
                     unsigned char* fresh, int row_bytes) {
  auto& s = dev::SharedMemory<RowShared>();
  const int64_t r = blockIdx.x;
  MakeRow(s, from, r, position[r]);
  __syncthreads();
  PackRow(s, from.width, format, fresh + r * row_bytes);
}

__global__ void __launch_bounds__(kThreads)
    EntryWriteKernel(const RowsView rows, const RowSource from, RowFormat format,
                     const PagedView store) {
  auto& s = dev::SharedMemory<RowShared>();
  const int64_t r = blockIdx.x;
  const int position = rows.position[r];
  if ((position + 1) % store.ratio != 0 || position < rows.write_floor[r]) return;
  MakeRow(s, from, r, position + 1 - store.ratio);
  __syncthreads();
  PackRow(s, from.width, format, RowAt(store, rows.sequence[r], position));
}

__global__ void __launch_bounds__(kThreads)
    RoundTripKernel(float* x, int64_t vectors, RowFormat format) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  auto* at = reinterpret_cast<float4*>(x) + i;
  float4 v = make_float4(0, 0, 0, 0);
  if (i < vectors) v = dev::Load(at);
  const Scale scale = ScaleOf(format, v);
  if (i >= vectors) return;
  const bool fp8 = format == RowFormat::kFp8Block32;
  const auto trip = [&](float value) {
    const uint32_t code = CodeOf(fp8, value / scale.value);
    return (fp8 ? dev::E4m3ToFloat(static_cast<uint8_t>(code)) : E2m1ToFloat(code)) * scale.value;
  };
  dev::Store(at, make_float4(trip(v.x), trip(v.y), trip(v.z), trip(v.w)));
}

// A later row of the sequence may take the place.
__global__ void __launch_bounds__(kThreads)
    RingWriteKernel(const RowsView rows, const RingView ring, const unsigned char* fresh,
                    int count) {
  const int r = static_cast<int>(blockIdx.x);
  const int sequence = rows.sequence[r];
  if (r + ring.ring_rows < count && rows.sequence[r + ring.ring_rows] == sequence) return;
  const unsigned char* from = fresh + r * ring.row_bytes;
  unsigned char* to = RowAt(ring, sequence, rows.position[r]);
  for (int i = static_cast<int>(threadIdx.x); i < ring.row_bytes / 4; i += kThreads) {
    dev::Store(reinterpret_cast<uint32_t*>(to) + i,
               dev::Load(reinterpret_cast<const uint32_t*>(from) + i));
  }
}

struct PairParams {
  const float* kv;
  const float* gate;
  RingView kv_carry;
  RingView gate_carry;
  const float* weight;
  float* latent;
  int width;
  float eps;
};

// The softmax over a pair of tokens is a sigmoid of their gates' difference.
__global__ void __launch_bounds__(kThreads)
    CompressPairKernel(const RowsView rows, const int32_t* fresh_from, const PairParams p) {
  auto& s = dev::SharedMemory<RowShared>();
  const int64_t r = blockIdx.x;
  const int position = rows.position[r];
  float* latent = p.latent + r * p.width;
  if (position % 2 == 0) {
    for (int i = static_cast<int>(threadIdx.x); i < p.width; i += kThreads) latent[i] = 0;
    return;
  }
  const float* kv = p.kv + (r - 1) * p.width;
  const float* gate = p.gate + (r - 1) * p.width;
  if (position - 1 < fresh_from[r]) {
    const int sequence = rows.sequence[r];
    kv = reinterpret_cast<const float*>(RowAt(p.kv_carry, sequence, position - 1));
    gate = reinterpret_cast<const float*>(RowAt(p.gate_carry, sequence, position - 1));
  }
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.width; i += kThreads) {
    const double second = p.gate[r * p.width + i];
    const double share = 1.0 / (1.0 + exp(gate[i] - second));
    const auto value = static_cast<float>(kv[i] * (1.0 - share) + p.kv[r * p.width + i] * share);
    s.row[i] = value;
    sum += static_cast<double>(value) * value;
  }
  const double inverse = 1.0 / sqrt(BlockSum(sum, s.partial) / p.width + p.eps);
  for (int i = static_cast<int>(threadIdx.x); i < p.width; i += kThreads) {
    latent[i] = static_cast<float>(s.row[i] * inverse * p.weight[i]);
  }
}

bool Packs(RowFormat format, int width) {
  return (format == RowFormat::kFp8Block32 || format == RowFormat::kFp4Block16 ||
          format == RowFormat::kFp4Block32) &&
         width % 32 == 0 && width <= kWidthMax;
}

template <class Args>
RowSource SourceOf(const Args& args, const Tensor& x) {
  WEIR_CHECK(args.rope % 2 == 0 && args.rope <= args.width);
  return {As<const float>(x),
          As<const float>(args.norm_weight),
          As<const float>(args.frequency),
          args.width,
          args.rope,
          args.eps};
}

}  // namespace

void WindowRows(const Queue& queue, const WindowRowsArgs& args) {
  WEIR_CHECK(Packs(args.format, args.width));
  if (args.rows->count == 0) return;
  const auto row_bytes = static_cast<int>(RowBytes(args.format, static_cast<size_t>(args.width)));
  WEIR_CHECK(row_bytes % 4 == 0);
  Launch(queue, dim3(static_cast<unsigned>(args.rows->count)), dim3(kThreads), sizeof(RowShared),
         WindowRowsKernel, As<const int32_t>(args.rows->position), SourceOf(args, args.kv),
         args.format, As<unsigned char>(args.fresh), row_bytes);
}

void EntryWrite(const Queue& queue, const EntryWriteArgs& args) {
  const PagedKv& store = args.store;
  WEIR_CHECK(Packs(store.format, args.width) && store.row_bytes % 4 == 0);
  WEIR_CHECK(store.page_bytes % 4 == 0 && store.layer_offset % 4 == 0);
  if (args.rows->count == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(args.rows->count)), dim3(kThreads), sizeof(RowShared),
         EntryWriteKernel, ViewOf(*args.rows), SourceOf(args, args.x), store.format, ViewOf(store));
}

void RoundTrip(const Queue& queue, const RoundTripArgs& args) {
  if (args.format == RowFormat::kF32 || args.rows == 0) return;
  WEIR_CHECK(Packs(args.format, args.width));
  const int64_t vectors = args.rows * args.width / kPer;
  Launch(queue, dim3(static_cast<unsigned>((vectors + kThreads - 1) / kThreads)), dim3(kThreads), 0,
         RoundTripKernel, As<float>(args.x), vectors, args.format);
}

void RingWrite(const Queue& queue, const RingWriteArgs& args) {
  const RingKv& ring = args.ring;
  WEIR_CHECK(ring.row_bytes % 4 == 0 && ring.state_bytes % 4 == 0 && ring.layer_offset % 4 == 0);
  if (args.rows->count == 0) return;
  Launch(queue, dim3(static_cast<unsigned>(args.rows->count)), dim3(kThreads), 0, RingWriteKernel,
         ViewOf(*args.rows), ViewOf(ring), As<const unsigned char>(args.fresh), args.rows->count);
}

void CompressPair(const Queue& queue, const CompressPairArgs& args) {
  WEIR_CHECK(args.width <= kWidthMax);
  for (const RingKv* ring : {&args.kv_carry, &args.gate_carry}) {
    WEIR_CHECK(ring->row_bytes % 4 == 0 && ring->state_bytes % 4 == 0 &&
               ring->layer_offset % 4 == 0);
  }
  if (args.rows->count == 0) return;
  const PairParams p = {As<const float>(args.kv),
                        As<const float>(args.gate),
                        ViewOf(args.kv_carry),
                        ViewOf(args.gate_carry),
                        As<const float>(args.norm_weight),
                        As<float>(args.latent),
                        args.width,
                        args.eps};
  Launch(queue, dim3(static_cast<unsigned>(args.rows->count)), dim3(kThreads), sizeof(RowShared),
         CompressPairKernel, ViewOf(*args.rows), As<const int32_t>(args.rows->fresh_from), p);
}

}  // namespace weir::kernels::cuda
