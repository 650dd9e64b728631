// SPDX-License-Identifier: Apache-2.0
//
// Builds the tensor list of a family, for the lists of this folder only: each call adds one tensor
// to the current part of the model, in its released form. Plain values; single thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/expected_tensors.h"

namespace weir::engine {

class TensorList {
 public:
  // Where `block` is empty nothing is quantised.
  TensorList(ScaleForm scales, TensorBlock block) : scales_(scales), block_(block) {}

  TensorList& In(ModelPart part) {
    part_ = part;
    return *this;
  }

  void Vector(std::string name, int64_t size, kernels::DType dtype = kernels::DType::kBf16) {
    Add(std::move(name), TensorUse::kVector, {size}, dtype);
  }
  void Table(std::string name, int64_t rows, int64_t cols) {
    Add(std::move(name), TensorUse::kTable, {rows, cols}, kernels::DType::kBf16);
  }
  void Indices(std::string name, int64_t rows, int64_t cols) {
    Add(std::move(name), TensorUse::kIndices, {rows, cols}, kernels::DType::kI64);
  }
  // A matrix of its own name that no release quantises.
  void Matrix(std::string name, int64_t rows, int64_t cols,
              kernels::DType dtype = kernels::DType::kBf16) {
    Add(std::move(name), TensorUse::kMatrix, {rows, cols}, dtype);
  }
  void Plain(const std::string& prefix, int64_t outputs, int64_t inputs) {
    Matrix(prefix + ".weight", outputs, inputs);
  }
  // `<prefix>.weight` in FP8 with its scales.
  void Fp8(const std::string& prefix, int64_t outputs, int64_t inputs) {
    if (block_.rows == 0) return Plain(prefix, outputs, inputs);
    Matrix(prefix + ".weight", outputs, inputs, kernels::DType::kF8E4m3);
    list_.back().scales = scales_;
    list_.back().block = block_;
  }
  // `<prefix>.weight` in FP4, one scale for `group` inputs.
  void Fp4(const std::string& prefix, int64_t outputs, int64_t inputs, int64_t group) {
    if (block_.rows == 0) return Plain(prefix, outputs, inputs);
    Matrix(prefix + ".weight", outputs, inputs, kernels::DType::kI8);
    list_.back().scales = scales_;
    list_.back().block = {1, group};
  }
  // A table of FP8 rows, one scale for `group` values of a row.
  void Fp8Table(const std::string& prefix, int64_t rows, int64_t cols, int64_t group) {
    Add(prefix + ".weight", TensorUse::kPacked, {rows, cols}, kernels::DType::kF8E4m3);
    list_.back().scales = ScaleForm::kE8m0;
    list_.back().block = {1, group};
  }

  std::vector<ExpectedTensor> Take() { return std::move(list_); }

 private:
  void Add(std::string name, TensorUse use, std::vector<int64_t> shape, kernels::DType dtype) {
    ExpectedTensor& tensor = list_.emplace_back();
    tensor.name = std::move(name);
    tensor.use = use;
    tensor.shape = std::move(shape);
    tensor.dtype = dtype;
    tensor.part = part_;
  }

  const ScaleForm scales_;
  const TensorBlock block_;
  ModelPart part_ = ModelPart::kAttention;
  std::vector<ExpectedTensor> list_;
};

}  // namespace weir::engine
