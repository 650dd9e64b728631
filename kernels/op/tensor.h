// SPDX-License-Identifier: Apache-2.0
//
// What model code knows of numbers: a Tensor is a dtype, a shape and an address on a device, and a
// Matrix is a weight in whatever tiling a backend chose at load. Both are plain values that own
// nothing; the Backend that made them owns the memory. The address is an integer on purpose: only
// kernels turn it into a pointer, and model code never reads what is there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weir::kernels {

enum class DType : uint8_t {
  kUnspecified = 0,
  kF32 = 1,
  kBf16 = 2,
  kF16 = 3,
  kF8E4m3 = 4,
  kF8E8m0 = 5,
  kI8 = 6,
  kU8 = 7,
  kI32 = 8,
  kI64 = 9,
};

constexpr size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kF8E4m3:
    case DType::kF8E8m0:
    case DType::kI8:
    case DType::kU8:
      return 1;
    case DType::kI64:
      return 8;
    case DType::kUnspecified:
      break;
  }
  return 0;
}

constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBf16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4m3:
      return "F8_E4M3";
    case DType::kF8E8m0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kUnspecified:
      break;
  }
  return "?";
}

using DeviceAddress = uintptr_t;

struct Tensor {
  DeviceAddress address = 0;
  DType dtype = DType::kUnspecified;
  std::array<int64_t, 3> shape{};  // unused trailing extents are 1

  int64_t elements() const { return shape[0] * shape[1] * shape[2]; }
  bool empty() const { return address == 0; }
  // The same memory from element `index` on, as one dimension of `count`.
  Tensor Slice(int64_t index, int64_t count) const {
    return {address + static_cast<uintptr_t>(index) * DTypeBytes(dtype), dtype, {count, 1, 1}};
  }
};

// A weight [rows = outputs, cols = inputs], prepared by Backend::LoadMatrix. The last three fields
// tell how it was stored: kernels choose by them, and `vendor` numerics round activations by them.
struct Matrix {
  DeviceAddress address = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kUnspecified;
  DType scale_dtype = DType::kUnspecified;
  int32_t block_cols = 0;

  bool empty() const { return address == 0; }
};

// A table of rows that are looked up, prepared by Backend::MapTable.
struct Table {
  DeviceAddress values = 0;
  DeviceAddress scales = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kUnspecified;
  DType scale_dtype = DType::kUnspecified;
  int32_t block_cols = 0;

  bool empty() const { return values == 0; }
};

// A weight or table as stored: row-major values and, for F8_E4M3 and packed FP4, one scale per
// block. Bytes need no alignment. value = stored * scale[row / block_rows][col / block_cols].
// Packed FP4 has dtype I8 and two columns in a byte, the even one in the low nibble; `cols` counts
// columns, not bytes. Scales are F32, or F8_E8M0: a byte b is 2^(b - 127), 255 is NaN.
//   V3            F8_E4M3, F32 per 128 x 128      V4.1 dense    F8_E4M3, E8M0 per 32 x 32
//   V4.1 experts  I8, E8M0 per 1 x 32             Engram rows   F8_E4M3, E8M0 per 1 x 32
struct HostMatrix {
  const std::byte* values = nullptr;
  DType dtype = DType::kUnspecified;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* scales = nullptr;  // null where the dtype needs none
  int64_t block_rows = 0;
  int64_t block_cols = 0;
  DType scale_dtype = DType::kF32;
  // MLA's kv_b alone: each head's rows are `head_transposed` rows that MlaAbsorbQuery multiplies
  // transposed and `head_plain` rows for MlaExpandValue. A backend may tile such a weight for these
  // two and no other operation.
  int64_t head_transposed = 0;
  int64_t head_plain = 0;
};

// How exact a backend computes and what it keeps (decisions, "Numerics").
enum class Numerics : uint8_t {
  kUnspecified = 0,
  kFp32 = 1,    // everything in F32 or better, KV in F32: for comparison with outside truth
  kNative = 2,  // KV in the family's storage format (V3: BF16), activations not quantised
  kVendor = 3,  // BF16 roundings and FP8 activations where the released code has them; `ref` only
};

}  // namespace weir::kernels
