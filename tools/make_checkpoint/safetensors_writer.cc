// SPDX-License-Identifier: Apache-2.0
#include "tools/make_checkpoint/safetensors_writer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/units.h"
#include "nlohmann/json.hpp"
#include "tools/make_checkpoint/fp8_codes.h"

namespace weir::tools {
namespace {

template <class T>
std::string BytesOfVector(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

void SafetensorsWriter::Add(const std::string& name, const std::string& dtype,
                            std::vector<int64_t> shape, std::string bytes) {
  entries_[name] = {dtype, std::move(shape), std::move(bytes)};
}

void SafetensorsWriter::AddF32(const std::string& name, std::vector<int64_t> shape,
                               const std::vector<float>& values) {
  Add(name, "F32", std::move(shape), BytesOfVector(values));
}

void SafetensorsWriter::AddBf16(const std::string& name, std::vector<int64_t> shape,
                                const std::vector<float>& values) {
  std::vector<uint16_t> codes(values.size());
  std::transform(values.begin(), values.end(), codes.begin(), Bf16Code);
  Add(name, "BF16", std::move(shape), BytesOfVector(codes));
}

void SafetensorsWriter::AddFp8(const std::string& name, int64_t rows, int64_t cols, int64_t block,
                               const std::vector<float>& values) {
  const int64_t across = CeilDiv(cols, block);
  std::vector<float> scales(static_cast<size_t>(CeilDiv(rows, block) * across), 1e-12f);
  const auto scale_of = [&](int64_t row, int64_t col) -> float& {
    return scales[static_cast<size_t>(row / block * across + col / block)];
  };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const float magnitude = std::abs(values[static_cast<size_t>(r * cols + c)]) / 448.0f;
      scale_of(r, c) = std::max(scale_of(r, c), magnitude);
    }
  }
  std::string codes(values.size(), '\0');
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<size_t>(r * cols + c);
      codes[i] = static_cast<char>(E4m3Code(double{values[i]} / scale_of(r, c)));
    }
  }
  Add(name, "F8_E4M3", {rows, cols}, std::move(codes));
  AddF32(name + "_scale_inv", {CeilDiv(rows, block), across}, scales);
}

absl::Status SafetensorsWriter::Write(const std::string& path) const {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, entry] : entries_) {
    header[name] = {{"dtype", entry.dtype},
                    {"shape", entry.shape},
                    {"data_offsets", {data.size(), data.size() + entry.bytes.size()}}};
    data += entry.bytes;
  }
  std::string text = header.dump();
  text.append(AlignUp<size_t>(text.size(), 8) - text.size(), ' ');
  std::string head(8, '\0');
  StoreAs<uint64_t>(head.data(), text.size());
  return WriteFile(path, head + text + data);
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return Error(Reason::kBadField, absl::StrCat("cannot write ", path), "out");
  return absl::OkStatus();
}

}  // namespace weir::tools
