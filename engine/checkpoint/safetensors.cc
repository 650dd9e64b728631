// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/stdx/bytes.h"

namespace weir::engine {
namespace {

namespace dom = simdjson::dom;
using kernels::DType;

absl::Status Corrupt(std::string_view what) {
  return Error(Reason::kCorrupt, absl::StrCat("safetensors header: ", AbslView(what)), "model");
}
absl::Status Corrupt(std::string_view tensor, std::string_view what) {
  // A name from a broken file may be anything; a message needs only its beginning.
  return Corrupt(
      absl::StrCat("tensor \"", AbslView(tensor.substr(0, 200)), "\": ", AbslView(what)));
}

DType DTypeOf(std::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4m3, DType::kF8E8m0,
                            DType::kI8, DType::kU8, DType::kI32, DType::kI64}) {
    if (kernels::DTypeName(dtype) == name) return dtype;
  }
  return DType::kUnspecified;
}

absl::Status ReadShape(const dom::element& entry, TensorView* tensor, uint64_t* elements) {
  dom::array shape;
  if (entry["shape"].get(shape) != simdjson::SUCCESS) {
    return Corrupt(tensor->name, "shape is missing or not an array");
  }
  if (shape.size() > kTensorRankMax) return Corrupt(tensor->name, "too many dimensions");
  *elements = 1;
  for (const dom::element& extent : shape) {
    uint64_t value = 0;
    if (extent.get(value) != simdjson::SUCCESS || value > uint64_t{1} << 48) {
      return Corrupt(tensor->name, "shape has an extent that is no count");
    }
    if (__builtin_mul_overflow(*elements, value, elements) || *elements > uint64_t{1} << 56) {
      return Corrupt(tensor->name, "the product of the shape overflows");
    }
    tensor->shape.push_back(static_cast<int64_t>(value));
  }
  return absl::OkStatus();
}

absl::Status ReadEntry(const dom::element& entry, std::span<const std::byte> data,
                       TensorView* tensor) {
  std::string_view dtype;
  if (!entry.is_object() || entry["dtype"].get(dtype) != simdjson::SUCCESS) {
    return Corrupt(tensor->name, "dtype is missing or not a string");
  }
  tensor->dtype = DTypeOf(dtype);
  uint64_t elements = 0;
  WEIR_TRY(ReadShape(entry, tensor, &elements));
  dom::array offsets;
  uint64_t begin = 0;
  uint64_t end = 0;
  if (entry["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
      offsets.at(0).get(begin) != simdjson::SUCCESS ||
      offsets.at(1).get(end) != simdjson::SUCCESS) {
    return Corrupt(tensor->name, "data_offsets must be two counts");
  }
  if (begin > end || end > data.size()) {
    return Corrupt(tensor->name, "data_offsets lie outside the file");
  }
  if (tensor->dtype != DType::kUnspecified &&
      end - begin != elements * kernels::DTypeBytes(tensor->dtype)) {
    return Corrupt(tensor->name, "data_offsets do not match dtype and shape");
  }
  tensor->bytes = data.subspan(begin, end - begin);
  return absl::OkStatus();
}

// Tensors cover the data without overlap or holes, so that a file of another length is noticed.
absl::Status CheckCover(const std::vector<TensorView>& tensors, std::span<const std::byte> data) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) {
    if (!tensor.bytes.empty()) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    return a->bytes.data() < b->bytes.data();
  });
  const std::byte* end = data.data();
  for (const TensorView* tensor : order) {
    if (tensor->bytes.data() < end) return Corrupt(tensor->name, "data overlaps another tensor's");
    if (tensor->bytes.data() > end) return Corrupt(tensor->name, "a hole lies before the data");
    end += tensor->bytes.size();
  }
  if (end != data.data() + data.size()) return Corrupt("bytes after the last tensor's data");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TensorView>> ParseSafetensors(std::span<const std::byte> file) {
  if (file.size() < 8) return Corrupt("the file is shorter than 8 bytes");
  const auto length = LoadAs<uint64_t>(file.data());
  if (length > kHeaderBytesMax) return Corrupt("longer than 128 MiB");
  if (length > file.size() - 8) return Corrupt("longer than the file");
  dom::parser parser;
  dom::object header;
  const auto* text = reinterpret_cast<const char*>(file.data() + 8);
  if (parser.parse(text, length).get(header) != simdjson::SUCCESS) {
    return Corrupt("not a JSON object");
  }
  const std::span<const std::byte> data = file.subspan(8 + length);
  std::vector<TensorView> tensors;
  absl::flat_hash_set<std::string> names;
  for (const auto& [key, entry] : header) {
    if (!names.emplace(key).second) return Corrupt(key, "the name repeats");
    if (key == "__metadata__") continue;
    if (tensors.size() == kTensorsMax) return Corrupt("more than 1,048,576 tensors");
    TensorView tensor;
    tensor.name = std::string(key);
    WEIR_TRY(ReadEntry(entry, data, &tensor));
    tensors.push_back(std::move(tensor));
  }
  WEIR_TRY(CheckCover(tensors, data));
  return tensors;
}

std::string Describe(const TensorView& tensor) {
  return absl::StrCat(AbslView(kernels::DTypeName(tensor.dtype)), "[",
                      absl::StrJoin(tensor.shape, ", "), "]");
}

}  // namespace weir::engine
