// SPDX-License-Identifier: Apache-2.0
//
// Rows of KV stores in any format, through the kernels where there is one. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstring>

#include "kernels/cpu/kernel_table.h"
#include "kernels/op/formats.h"
#include "kernels/ref/formats.h"

namespace weir::kernels::cpu {

inline void DecodeStoreRow(const KernelTable& kernels, RowFormat format, const std::byte* from,
                           int width, float* to) {
  const auto* codes = reinterpret_cast<const uint8_t*>(from);
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
      return;
    case RowFormat::kFp8Block32:
      return kernels.decode_fp8_block32(codes, codes + width, width, to);
    case RowFormat::kFp4Block16:
      return kernels.decode_fp4_block16(codes, codes + width / 2, width, to);
    case RowFormat::kFp4Block32:
      return kernels.decode_fp4_block32(codes, codes + width / 2, width, to);
    default:
      return ref::DecodeRow(format, from, width, to);
  }
}

inline void EncodeStoreRow(const KernelTable& kernels, RowFormat format, const float* x, int width,
                           std::byte* to) {
  auto* codes = reinterpret_cast<uint8_t*>(to);
  switch (format) {
    case RowFormat::kFp8Block32:
      return kernels.encode_fp8_block32(x, width, codes);
    case RowFormat::kFp4Block16:
      return kernels.encode_fp4_block16(x, width, codes);
    case RowFormat::kFp4Block32:
      return kernels.encode_fp4_block32(x, width, codes);
    default:
      return ref::EncodeRow(format, x, width, to);
  }
}

}  // namespace weir::kernels::cpu
