// SPDX-License-Identifier: Apache-2.0
#include "tools/make_checkpoint/released_form.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/units.h"
#include "tools/make_checkpoint/fp8_codes.h"

namespace weir::tools {
namespace {

using engine::ExpectedTensor;
using engine::ScaleForm;
using kernels::DType;

constexpr double kE4m3Max = 448;
constexpr double kE2m1Max = 6;

// One E8M0 byte for each block, so that its largest value just fits.
std::string BlockScales(const ExpectedTensor& tensor, const std::vector<float>& values,
                        double largest) {
  const int64_t cols = tensor.shape[1];
  const std::vector<int64_t> grid = tensor.scale_shape();
  std::vector<float> peaks(static_cast<size_t>(grid[0] * grid[1]));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / cols;
    const auto col = static_cast<int64_t>(i) % cols;
    float& peak =
        peaks[static_cast<size_t>(row / tensor.block.rows * grid[1] + col / tensor.block.cols)];
    peak = std::max(peak, std::abs(values[i]));
  }
  std::string scales;
  for (const float peak : peaks) scales.push_back(static_cast<char>(E8m0Code(peak, largest)));
  return scales;
}

double ScaleOf(const ExpectedTensor& tensor, const std::string& scales, size_t index) {
  const auto row = static_cast<int64_t>(index) / tensor.shape[1];
  const auto col = static_cast<int64_t>(index) % tensor.shape[1];
  const int64_t across = CeilDiv(tensor.shape[1], tensor.block.cols);
  const auto at = static_cast<size_t>(row / tensor.block.rows * across + col / tensor.block.cols);
  return std::ldexp(1.0, static_cast<uint8_t>(scales[at]) - 127);
}

}  // namespace

void AddReleased(const ExpectedTensor& tensor, const std::vector<float>& values,
                 SafetensorsWriter* out) {
  WEIR_CHECK(static_cast<int64_t>(values.size()) == tensor.values());
  if (tensor.dtype == DType::kF32) return out->AddF32(tensor.name, tensor.shape, values);
  if (tensor.dtype == DType::kBf16) return out->AddBf16(tensor.name, tensor.shape, values);
  if (tensor.scales == ScaleForm::kInverseF32) {
    return out->AddFp8(tensor.name, tensor.shape[0], tensor.shape[1], tensor.block.rows, values);
  }
  const bool fp4 = tensor.dtype == DType::kI8;
  std::string scales = BlockScales(tensor, values, fp4 ? kE2m1Max : kE4m3Max);
  std::string codes(fp4 ? values.size() / 2 : values.size(), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const double scaled = values[i] / ScaleOf(tensor, scales, i);
    if (fp4) {
      codes[i / 2] = static_cast<char>(codes[i / 2] | (E2m1Code(scaled) << (i % 2 * 4)));
    } else {
      codes[i] = static_cast<char>(E4m3Code(scaled));
    }
  }
  out->Add(tensor.name, fp4 ? "I8" : "F8_E4M3", tensor.stored_shape(), std::move(codes));
  out->Add(tensor.scale_name(), "F8_E8M0", tensor.scale_shape(), std::move(scales));
}

}  // namespace weir::tools
