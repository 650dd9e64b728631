// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format: an 8-byte little-endian header length, a JSON header, then tensor bytes.
// Parsing is pure and trusts nothing: lengths, offsets, shapes and dtypes are checked against each
// other and against the file, names may not repeat, and tensors cover the data exactly. Views point into the
// caller's bytes and need no alignment. Errors name the tensor and are kCorrupt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/stdx/status.h"
#include "kernels/op/tensor.h"

namespace weir::engine {

struct TensorView {
  std::string name;
  kernels::DType dtype = kernels::DType::kUnspecified;  // kUnspecified for one we do not know
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

inline constexpr size_t kHeaderBytesMax = size_t{128} << 20;
inline constexpr size_t kTensorsMax = size_t{1} << 20;
inline constexpr size_t kTensorRankMax = 8;

absl::StatusOr<std::vector<TensorView>> ParseSafetensors(std::span<const std::byte> file);

// "BF16[128, 256]", for messages.
std::string Describe(const TensorView& tensor);

}  // namespace weir::engine
