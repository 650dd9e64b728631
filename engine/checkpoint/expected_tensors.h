// SPDX-License-Identifier: Apache-2.0
//
// Which tensors a family's checkpoint holds, and the check of a checkpoint against that list before
// anything uses it. The list alone says what a release weighs. Pure, except that reading scales
// pages them in. Errors are kBadField and name the tensor: missing, of a wrong shape or dtype, FP8
// or FP4 without its scales, not of this family, or with scales that are no numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/status.h"
#include "engine/checkpoint/weights.h"
#include "kernels/op/tensor.h"

namespace weir::engine {

enum class TensorUse : uint8_t {
  kVector = 0,   // F32 or BF16: norms, biases
  kTable = 1,    // F32 or BF16, looked up by row
  kMatrix = 2,   // in the released form, or plain in F32 or BF16
  kPacked = 3,   // in the released form alone: tables too large to have another
  kIndices = 4,  // I32 or I64
};

// Where in the model a tensor counts.
enum class ModelPart : uint8_t {
  kEmbedding = 0,  // input and output embeddings
  kAttention = 1,
  kIndexer = 2,
  kDense = 3,  // feed-forward of dense layers
  kExperts = 4,
  kSharedExperts = 5,
  kRouter = 6,
  kResidual = 7,  // norms and stream mixing
  kEngramTable = 8,
  kEngram = 9,
  kDraft = 10,
  kDraftCopy = 11,  // embeddings of the drafter that repeat the model's
  kVision = 12,
};
inline constexpr int kModelPartCount = 13;
// "routed experts"
std::string_view ModelPartName(ModelPart part);

// Values of a row that share one scale in FP4 matrices and Engram tables.
inline constexpr int64_t kFp4Group = 32;

struct TensorBlock {
  int64_t rows = 0;
  int64_t cols = 0;
};

enum class ScaleForm : uint8_t {
  kNone = 0,
  kInverseF32 = 1,  // `<name>_scale_inv`, F32, one per block
  kE8m0 = 2,        // `.weight` replaced by `.scale`, F8_E8M0, one per block
};

struct ExpectedTensor {
  std::string name;
  TensorUse use = TensorUse::kMatrix;
  std::vector<int64_t> shape;                    // of values: FP4 stores two in a byte
  kernels::DType dtype = kernels::DType::kBf16;  // as released; kI8 holds two FP4
  ScaleForm scales = ScaleForm::kNone;
  TensorBlock block;  // of values that share a scale
  ModelPart part = ModelPart::kAttention;
  bool optional = false;

  int64_t values() const;
  std::vector<int64_t> stored_shape() const;
  std::string scale_name() const;
  std::vector<int64_t> scale_shape() const;
  // As released, scales included.
  int64_t bytes() const;
  int stored_tensors() const { return scales == ScaleForm::kNone ? 1 : 2; }
};

// Names, shapes and dtypes; reads headers only. A tensor that the list lacks is a fault as well.
absl::Status CheckTensors(const Weights& weights, const std::vector<ExpectedTensor>& expected);

// Every scale a number (F32: finite and not negative). Of a tensor of more than 64 MiB of scales,
// which only tables have, the first and last 32 MiB.
absl::Status CheckScales(const Weights& weights, const std::vector<ExpectedTensor>& expected);

// The stored form of a checked matrix: its scales are found beside it, FP4 by its dtype kI8.
kernels::HostMatrix HostMatrixOf(const Weights& weights, const std::string& name,
                                 TensorBlock block);

}  // namespace weir::engine
