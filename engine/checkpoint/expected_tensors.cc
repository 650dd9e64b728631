// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/expected_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/units.h"

namespace weir::engine {
namespace {

using kernels::DType;

constexpr size_t kScaleBytesRead = size_t{32} << 20;  // from either end of a large tensor

constexpr std::byte kE8m0NaN{0xff};

absl::Status Wrong(const std::string& name, std::string_view what) {
  return Error(Reason::kBadField, absl::StrCat("tensor \"", name, "\" ", AbslView(what)), name);
}

bool IsPlain(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16; }

// Whether `have` may stand for `want` in a form without scales.
bool FitsPlain(const ExpectedTensor& want, const TensorView& have) {
  if (have.shape != want.shape) return false;
  switch (want.use) {
    case TensorUse::kVector:
    case TensorUse::kTable:
    case TensorUse::kMatrix:
      return IsPlain(have.dtype);
    case TensorUse::kIndices:
      return have.dtype == DType::kI32 || have.dtype == DType::kI64;
    case TensorUse::kPacked:
      break;
  }
  return false;
}

std::string Wanted(const ExpectedTensor& want) {
  const auto shaped = [](DType dtype, const std::vector<int64_t>& shape) {
    return absl::StrCat(AbslView(kernels::DTypeName(dtype)), "[", absl::StrJoin(shape, ", "), "]");
  };
  std::string text = shaped(want.dtype, want.stored_shape());
  if (want.use == TensorUse::kPacked) return text;
  if (want.use == TensorUse::kIndices) return absl::StrCat(text, " or I32");
  if (want.scales == ScaleForm::kNone) return absl::StrCat(text, " (F32 or BF16)");
  return absl::StrCat(text, ", or [", absl::StrJoin(want.shape, ", "), "] of F32 or BF16");
}

absl::Status CheckScaleTensor(const Weights& weights, const ExpectedTensor& want) {
  const std::string name = want.scale_name();
  const TensorView* scales = weights.Find(name);
  if (scales == nullptr) return Wrong(name, "is missing");
  const DType dtype = want.scales == ScaleForm::kE8m0 ? DType::kF8E8m0 : DType::kF32;
  if (scales->dtype != dtype || scales->shape != want.scale_shape()) {
    return Wrong(name, absl::StrCat("is ", Describe(*scales), " but should be ",
                                    AbslView(kernels::DTypeName(dtype)), "[",
                                    absl::StrJoin(want.scale_shape(), ", "), "]"));
  }
  return absl::OkStatus();
}

bool AllNumbers(std::span<const std::byte> bytes, DType dtype) {
  if (dtype == DType::kF8E8m0) {
    return std::find(bytes.begin(), bytes.end(), kE8m0NaN) == bytes.end();
  }
  for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    const auto scale = LoadAs<float>(bytes.data() + at);
    if (!std::isfinite(scale) || scale < 0) return false;
  }
  return true;
}

}  // namespace

std::string_view ModelPartName(ModelPart part) {
  static constexpr std::array<std::string_view, kModelPartCount> kNames = {
      "embeddings",     "attention",        "index",    "dense MLPs",    "experts",
      "shared experts", "routers",          "residual", "Engram tables", "Engram mixing",
      "drafter",        "drafter's copies", "vision"};
  return kNames[static_cast<size_t>(part)];
}

int64_t ExpectedTensor::values() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::vector<int64_t> ExpectedTensor::stored_shape() const {
  std::vector<int64_t> stored = shape;
  if (dtype == DType::kI8) stored.back() = CeilDiv<int64_t>(stored.back(), 2);
  return stored;
}

std::string ExpectedTensor::scale_name() const {
  if (scales == ScaleForm::kInverseF32) return name + "_scale_inv";
  WEIR_CHECK(absl::EndsWith(name, ".weight"));
  return name.substr(0, name.size() - 7) + ".scale";
}

std::vector<int64_t> ExpectedTensor::scale_shape() const {
  return {CeilDiv(shape[0], block.rows), CeilDiv(shape[1], block.cols)};
}

int64_t ExpectedTensor::bytes() const {
  int64_t total = static_cast<int64_t>(kernels::DTypeBytes(dtype));
  for (const int64_t extent : stored_shape()) total *= extent;
  if (scales == ScaleForm::kNone) return total;
  const std::vector<int64_t> grid = scale_shape();
  return total + grid[0] * grid[1] * (scales == ScaleForm::kE8m0 ? 1 : 4);
}

absl::Status CheckTensors(const Weights& weights, const std::vector<ExpectedTensor>& expected) {
  absl::flat_hash_set<std::string> known;
  for (const ExpectedTensor& want : expected) {
    known.insert(want.name);
    const TensorView* have = weights.Find(want.name);
    if (have == nullptr) {
      if (want.optional) continue;
      return Wrong(want.name, "is missing");
    }
    if (FitsPlain(want, *have)) continue;
    if (have->dtype == DType::kF8E4m3 && want.use == TensorUse::kMatrix && want.block.rows == 0 &&
        weights.Find(want.name + "_scale_inv") != nullptr) {
      return Wrong(want.name, "is F8_E4M3, but config.json has no quantization_config for it");
    }
    if (have->dtype != want.dtype || have->shape != want.stored_shape()) {
      return Wrong(want.name,
                   absl::StrCat("is ", Describe(*have), " but should be ", Wanted(want)));
    }
    if (want.scales == ScaleForm::kNone) continue;
    WEIR_TRY(CheckScaleTensor(weights, want));
    known.insert(want.scale_name());
  }
  return weights.CheckNoOthers(known);
}

absl::Status CheckScales(const Weights& weights, const std::vector<ExpectedTensor>& expected) {
  for (const ExpectedTensor& want : expected) {
    if (want.scales == ScaleForm::kNone) continue;
    const TensorView* scales = weights.Find(want.scale_name());
    if (scales == nullptr) continue;  // stored plain
    std::span<const std::byte> bytes = scales->bytes;
    bool good = true;
    if (bytes.size() > 2 * kScaleBytesRead) {
      good = AllNumbers(bytes.last(kScaleBytesRead), scales->dtype);
      bytes = bytes.first(kScaleBytesRead);
    }
    if (!good || !AllNumbers(bytes, scales->dtype)) {
      return Wrong(scales->name, scales->dtype == DType::kF8E8m0
                                     ? "has a scale that is NaN"
                                     : "has a scale that is NaN, infinite or negative");
    }
  }
  return absl::OkStatus();
}

kernels::HostMatrix HostMatrixOf(const Weights& weights, const std::string& name,
                                 TensorBlock block) {
  const TensorView* values = weights.Find(name);
  WEIR_CHECK(values != nullptr && values->shape.size() == 2);
  kernels::HostMatrix host{values->bytes.data(), values->dtype, values->shape[0], values->shape[1]};
  if (values->dtype != DType::kF8E4m3 && values->dtype != DType::kI8) return host;
  ExpectedTensor form;
  form.name = name;
  form.scales = ScaleForm::kInverseF32;
  const TensorView* scales = weights.Find(form.scale_name());
  if (scales == nullptr) {
    form.scales = ScaleForm::kE8m0;
    scales = weights.Find(form.scale_name());
  }
  WEIR_CHECK(scales != nullptr);
  host.scales = scales->bytes.data();
  host.scale_dtype = scales->dtype;
  host.block_rows = block.rows;
  host.block_cols = block.cols;
  if (values->dtype == DType::kI8) {
    host.cols *= 2;
    host.block_rows = 1;
    host.block_cols = kFp4Group;
  }
  return host;
}

}  // namespace weir::engine
