// SPDX-License-Identifier: Apache-2.0
//
// Linear maps for few rows, which the bytes of the weight bound: out = W x with BF16, FP8 or FP4
// weights packed at load (pack.h), alone or one of each expert. A block makes 128 outputs. One
// thread brings weights and activations by the copy engine, some stages ahead; a warpgroup expands
// weights to BF16 in its registers, which is exact, and multiplies them from there: outputs are the
// rows of the product, up to 64 activations its columns. A sum runs over the inputs in order,
// however many rows there are.
#include "base/stdx/check.h"
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/tma_sm90.cuh"

namespace weir::kernels::cuda {
namespace {

constexpr int kTiles = 2;  // of 64 outputs, side by side in memory
constexpr int kOutputs = kTiles * kPackOutputs;
constexpr int kStages = 6;
constexpr int kConsumers = kPackThreads;
constexpr int kThreads = kConsumers + 32;
constexpr int kFewRows = 16;
constexpr int kManyRows = 64;
constexpr int kConvertThreads = 128;
constexpr int kVector = 8;  // BF16 values of 16 bytes

template <Packed kForm, int kN>
struct LinearShared {
  uint16_t x[kStages][kN * kPackInputs];  // swizzled rows of 128 bytes
  unsigned char weight[kStages][kTiles][kTileBytesOf<kForm>];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// Rows of slot s stand at [slot_begin[s], slot_begin[s + 1]); without slots they are 0 to `rows`.
struct LinearParams {
  const unsigned char* weight;
  const int64_t* slot_weight;  // addresses, one a slot
  const int32_t* slot_begin;
  const int32_t* entry;  // output row of a row; null: itself
  float* out;
  int rows;
  int outputs;
  int steps;       // of 64 inputs
  int group_rank;  // outputs that share a stretch of inputs
};

struct Span {
  const unsigned char* weight;
  int first;
  int end;
};

__device__ __forceinline__ Span SpanOf(const LinearParams& p, int columns) {
  const unsigned slot = blockIdx.y;
  Span span = {p.weight, 0, p.rows};
  if (p.slot_begin != nullptr) {
    span = {reinterpret_cast<const unsigned char*>(p.slot_weight[slot]), p.slot_begin[slot],
            p.slot_begin[slot + 1]};
  }
  span.first += static_cast<int>(blockIdx.z) * columns;
  return span;
}

// A thread's share of a tile as fragments of four products.
template <Packed kForm>
__device__ __forceinline__ void Expand(const unsigned char* tile, int t, uint32_t (&a)[4][4]) {
  constexpr int kValueBytes = kValueBytesOf<kForm>;
  const auto* vectors = reinterpret_cast<const uint4*>(tile) + t;
  if constexpr (kForm == Packed::kBf16) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint4 v = dev::Load(vectors + k * kPackThreads);
      a[k][0] = v.x;
      a[k][1] = v.y;
      a[k][2] = v.z;
      a[k][3] = v.w;
    }
    return;
  }
  uint32_t words[4];
  uint32_t scales = 0;
  if constexpr (kForm != Packed::kFp8Tile) {
    scales = dev::Load(reinterpret_cast<const uint32_t*>(tile + kValueBytes) + t / 4);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    // A vector has all four fragments, or two of them.
    constexpr int kFragments = kForm == Packed::kFp4 ? 4 : 2;
    if (k % kFragments == 0) {
      const uint4 v = dev::Load(vectors + k / kFragments * kPackThreads);
      words[0] = v.x;
      words[1] = v.y;
      words[2] = v.z;
      words[3] = v.w;
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float scale =
          kForm == Packed::kFp8Tile ? 1.0f : PowerOfTwo(scales >> (q % 2 * 16 + k / 2 * 8) & 255);
      if constexpr (kForm == Packed::kFp4) {
        const uint32_t pair = words[k] >> (q * 8);
        a[k][q] = dev::PackBf16(E2m1ToFloat(pair) * scale, E2m1ToFloat(pair >> 4) * scale);
      } else {
        const uint32_t pair = words[k % 2 * 2 + q / 2] >> (q % 2 * 16);
        a[k][q] = dev::PackBf16(dev::E4m3ToFloat(static_cast<uint8_t>(pair)) * scale,
                                dev::E4m3ToFloat(static_cast<uint8_t>(pair >> 8)) * scale);
      }
    }
  }
}

template <Packed kForm, int kN>
__device__ __forceinline__ void Produce(const LinearParams& p, LinearShared<kForm, kN>& s,
                                        const dev::TensorMap& map, const Span& span) {
  constexpr uint32_t kWeightBytes = kTiles * kTileBytesOf<kForm>;
  const int group = static_cast<int>(blockIdx.x) * kOutputs / p.group_rank;
  const unsigned char* weight =
      span.weight + static_cast<int64_t>(blockIdx.x) * p.steps * kWeightBytes;
  int count = 0;
  for (int first = span.first; first < span.end; first += static_cast<int>(gridDim.z) * kN) {
    for (int step = 0; step < p.steps; ++step, ++count) {
      const int stage = count % kStages;
      dev::MbarrierWait(&s.empty[stage], (static_cast<uint32_t>(count / kStages) & 1) ^ 1);
      dev::MbarrierExpect(&s.full[stage], kWeightBytes + kN * kPackInputs * 2);
      dev::BulkLoad(s.weight[stage], weight + static_cast<int64_t>(step) * kWeightBytes,
                    kWeightBytes, &s.full[stage]);
      dev::TensorLoad(s.x[stage], map, {(group * p.steps + step) * kPackInputs, first, 0},
                      &s.full[stage]);
    }
  }
}

// One step of both tiles; what an F32 scale belongs to is summed apart first.
template <Packed kForm, int kN>
__device__ __forceinline__ void Multiply(LinearShared<kForm, kN>& s, int stage,
                                         float (&sum)[kTiles][kN / 2]) {
  constexpr bool kApart = kForm == Packed::kFp8Tile;
  constexpr int kValueBytes = kValueBytesOf<kForm>;
  const int t = static_cast<int>(threadIdx.x);
  uint32_t a[kTiles][4][4];
  float part[kTiles][kApart ? kN / 2 : 1];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) Expand<kForm>(s.weight[stage][m], t, a[m]);
  dev::WgmmaFence();
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint64_t b = dev::MatrixDescriptor(&s.x[stage][k * 16], dev::Swizzle::k128, 0, 1024);
      if constexpr (kApart) {
        dev::Wgmma<dev::Operand::kBf16, kN>(part[m], a[m][k], b, k != 0);
      } else {
        dev::Wgmma<dev::Operand::kBf16, kN>(sum[m], a[m][k], b, true);
      }
    }
  }
  dev::WgmmaCommit();
  dev::WgmmaWait<0>();
  if constexpr (kApart) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const float scale =
          dev::Load(reinterpret_cast<const float*>(s.weight[stage][m] + kValueBytes));
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) sum[m][i] += scale * part[m][i];
    }
  }
}

template <int kN>
__device__ __forceinline__ void WriteRows(const LinearParams& p, int first, int end,
                                          const float (&sum)[kTiles][kN / 2]) {
  const int t = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    const int row = first + i / 4 * 8 + t % 4 * 2 + i % 2;
    if (row >= end) continue;
    const int64_t to = p.entry == nullptr ? row : p.entry[row];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const int output = static_cast<int>(blockIdx.x) * kOutputs + m * kPackOutputs + t / 32 * 16 +
                         t % 32 / 4 + i / 2 % 2 * 8;
      if (output < p.outputs) p.out[to * p.outputs + output] = sum[m][i];
    }
  }
}

template <Packed kForm, int kN>
__device__ __forceinline__ void Consume(const LinearParams& p, LinearShared<kForm, kN>& s,
                                        const Span& span) {
  int count = 0;
  for (int first = span.first; first < span.end; first += static_cast<int>(gridDim.z) * kN) {
    float sum[kTiles][kN / 2];
#pragma unroll
    for (int i = 0; i < kTiles * kN / 2; ++i) sum[i / (kN / 2)][i % (kN / 2)] = 0;
    for (int step = 0; step < p.steps; ++step, ++count) {
      const int stage = count % kStages;
      dev::MbarrierWait(&s.full[stage], static_cast<uint32_t>(count / kStages) & 1);
      Multiply(s, stage, sum);
      __syncwarp();
      if (dev::Lane() == 0) dev::MbarrierArrive(&s.empty[stage]);
    }
    WriteRows<kN>(p, first, span.end, sum);
  }
}

template <Packed kForm, int kN>
__global__ void __launch_bounds__(kThreads)
    LinearKernel(const LinearParams p, const __grid_constant__ dev::TensorMap map) {
  auto& s = dev::SharedMemory<LinearShared<kForm, kN>>();
  const Span span = SpanOf(p, kN);
  if (span.first >= span.end) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      dev::MbarrierInit(&s.full[i], 1);
      dev::MbarrierInit(&s.empty[i], kConsumers / 32);
    }
    dev::FenceProxy();
  }
  __syncthreads();
  if (threadIdx.x < kConsumers) {
    Consume(p, s, span);
  } else if (threadIdx.x == kConsumers) {
    Produce(p, s, map, span);
  }
}

// Row i of the product is row i / choices of x, by the entry that stands there. Rows that no slot
// has are zero.
__global__ void __launch_bounds__(kConvertThreads)
    ConvertRowsKernel(const float* x, const int32_t* entry, const int32_t* count, int choices,
                      int width, uint16_t* to) {
  const int row = static_cast<int>(blockIdx.x);
  const bool there = count == nullptr || row < *count;
  const int64_t from = entry == nullptr || !there ? row : entry[row] / choices;
  const auto* values = reinterpret_cast<const float4*>(x + from * width);
  auto* out = reinterpret_cast<uint2*>(to + static_cast<int64_t>(row) * width);
  for (int i = static_cast<int>(threadIdx.x); i < width / 4; i += kConvertThreads) {
    uint2 packed = make_uint2(0, 0);
    if (there) {
      const float4 v = dev::Load(values + i);
      packed = make_uint2(dev::PackBf16(v.x, v.y), dev::PackBf16(v.z, v.w));
    }
    dev::Store(out + i, packed);
  }
}

// A product's place in a launch: BF16 rows `width` apart, as many as the map shows.
struct Operands {
  DeviceAddress x;
  int rows;
  int64_t width;
  unsigned slots;
  bool many;
};

template <Packed kForm, int kN>
void LaunchForm(const Queue& queue, const LinearParams& p, const Operands& in) {
  using Shared = LinearShared<kForm, kN>;
  static_assert(sizeof(Shared) <= 232448, "more than a block can have");
  const auto tiles = static_cast<unsigned>((in.rows + kN - 1) / kN);
  // An expert's block goes through its rows itself: how many there are is not known here.
  const dim3 grid(static_cast<unsigned>((p.outputs + kOutputs - 1) / kOutputs), in.slots,
                  p.slot_begin == nullptr ? tiles : 1u);
  const auto width = static_cast<uint64_t>(in.width);
  const auto rows = static_cast<uint64_t>(in.rows);
  const dev::TensorMap map =
      dev::MakeTensorMap<3>(reinterpret_cast<void*>(in.x), /*element_bytes=*/2, dev::Swizzle::k128,
                            {width, rows, 1}, {2, width * 2, rows * width * 2}, {64, kN, 1});
  Launch(queue, grid, dim3(kThreads), sizeof(Shared), LinearKernel<kForm, kN>, p, map);
}

template <Packed kForm>
void LaunchRows(const Queue& queue, const LinearParams& p, const Operands& in) {
  if (in.many) {
    LaunchForm<kForm, kManyRows>(queue, p, in);
  } else {
    LaunchForm<kForm, kFewRows>(queue, p, in);
  }
}

void Product(const Queue& queue, const Matrix& weight, LinearParams p, const Operands& in) {
  p.outputs = static_cast<int>(weight.rows);
  p.steps = static_cast<int>((weight.cols + kPackInputs - 1) / kPackInputs);
  if (p.group_rank == 0) p.group_rank = (p.outputs + kOutputs - 1) / kOutputs * kOutputs;
  switch (PackedFormOf(weight)) {
    case Packed::kBf16:
      return LaunchRows<Packed::kBf16>(queue, p, in);
    case Packed::kFp8:
      return LaunchRows<Packed::kFp8>(queue, p, in);
    case Packed::kFp8Tile:
      return LaunchRows<Packed::kFp8Tile>(queue, p, in);
    case Packed::kFp4:
      return LaunchRows<Packed::kFp4>(queue, p, in);
    case Packed::kNone:
      break;
  }
  WEIR_CHECK(false && "no kernel takes this weight");
}

void ConvertRows(const Queue& queue, const Tensor& x, int rows, int64_t width,
                 const ExpertFfnArgs* experts, const Tensor& to) {
  const int32_t* entry = nullptr;
  const int32_t* count = nullptr;
  int choices = 1;
  if (experts != nullptr) {
    entry = As<const int32_t>(experts->entry);
    count = As<const int32_t>(experts->slot_begin) + experts->slots.size();
    choices = experts->choices;
  }
  Launch(queue, dim3(static_cast<unsigned>(rows)), dim3(kConvertThreads), 0, ConvertRowsKernel,
         As<const float>(x), entry, count, choices, static_cast<int>(width), As<uint16_t>(to));
}

int64_t Bf16Room(int64_t rows, int64_t width) { return (rows * width + 1) / 2; }

}  // namespace

int64_t LinearWorkspace(int rows, int64_t inputs) { return Bf16Room(rows, inputs); }

void Linear(const Queue& queue, const LinearArgs& args, const Tensor& workspace) {
  WEIR_CHECK(args.weight.cols % kVector == 0);
  WEIR_CHECK(workspace.elements() >= LinearWorkspace(args.rows, args.weight.cols));
  if (args.rows == 0) return;
  ConvertRows(queue, args.x, args.rows, args.weight.cols, nullptr, workspace);
  LinearParams p = {};
  p.weight = As<const unsigned char>({args.weight.address, DType::kU8, {}});
  p.out = As<float>(args.out);
  p.rows = args.rows;
  Product(queue, args.weight, p,
          {workspace.address, args.rows, args.weight.cols, 1, args.rows > kFewRows});
}

void GroupedLinear(const Queue& queue, const GroupedLinearArgs& args, const Tensor& workspace) {
  const int64_t width = args.weight.cols * args.groups;
  WEIR_CHECK(args.weight.cols % kPackInputs == 0);
  WEIR_CHECK(args.weight.rows % (int64_t{args.groups} * kOutputs) == 0);
  WEIR_CHECK(workspace.elements() >= LinearWorkspace(args.rows, width));
  if (args.rows == 0) return;
  ConvertRows(queue, args.x, args.rows, width, nullptr, workspace);
  LinearParams p = {};
  p.weight = As<const unsigned char>({args.weight.address, DType::kU8, {}});
  p.out = As<float>(args.out);
  p.rows = args.rows;
  p.group_rank = static_cast<int>(args.weight.rows / args.groups);
  Product(queue, args.weight, p, {workspace.address, args.rows, width, 1, args.rows > kFewRows});
}

int64_t ExpertWorkspace(const ExpertFfnArgs& args) {
  const Matrix& gate = args.slots.front().gate;
  return (Bf16Room(args.entries_max, gate.cols) + 3) / 4 * 4 +
         Bf16Room(args.entries_max, gate.rows);
}

void ExpertFfn(const Queue& queue, const ExpertFfnArgs& args, const ExpertTable& table,
               const Tensor& workspace) {
  if (args.entries_max == 0) return;
  const ExpertWeights& shape = args.slots.front();
  const int64_t inputs = shape.gate.cols;
  const int64_t wide = shape.gate.rows;
  const int entries = args.entries_max;
  WEIR_CHECK(inputs % kVector == 0 && wide % kVector == 0);
  WEIR_CHECK(workspace.elements() >= ExpertWorkspace(args));
  const Tensor x = workspace.Slice(0, Bf16Room(entries, inputs));
  const Tensor hidden =
      workspace.Slice((Bf16Room(entries, inputs) + 3) / 4 * 4, Bf16Room(entries, wide));
  const Tensor gate = args.hidden.Slice(0, entries * wide);
  const Tensor up = args.hidden.Slice(entries * wide, entries * wide);
  const auto slots = static_cast<unsigned>(args.slots.size());
  const bool many = entries > kFewRows * static_cast<int>(slots);
  ConvertRows(queue, args.x, entries, inputs, &args, x);
  LinearParams p = {};
  p.slot_begin = As<const int32_t>(args.slot_begin);
  p.slot_weight = As<const int64_t>(table.gate);
  p.out = As<float>(gate);
  Product(queue, shape.gate, p, {x.address, entries, inputs, slots, many});
  p.slot_weight = As<const int64_t>(table.up);
  p.out = As<float>(up);
  Product(queue, shape.up, p, {x.address, entries, inputs, slots, many});
  ExpertSwiglu(queue, args, gate, up, static_cast<int>(wide), hidden);
  p.slot_weight = As<const int64_t>(table.down);
  p.entry = As<const int32_t>(args.entry);
  p.out = As<float>(args.out);
  Product(queue, shape.down, p, {hidden.address, entries, wide, slots, many});
}

}  // namespace weir::kernels::cuda
