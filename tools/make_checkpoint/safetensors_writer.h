// SPDX-License-Identifier: Apache-2.0
//
// Collects tensors and writes one model.safetensors, names in order. Single thread; errors name the
// path. The same tensors give the same bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/stdx/status.h"

namespace weir::tools {

class SafetensorsWriter {
 public:
  void Add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
           std::string bytes);
  void AddF32(const std::string& name, std::vector<int64_t> shape,
              const std::vector<float>& values);
  void AddBf16(const std::string& name, std::vector<int64_t> shape,
               const std::vector<float>& values);
  // F8_E4M3 values under `name` and one F32 scale per block under `<name>_scale_inv`.
  void AddFp8(const std::string& name, int64_t rows, int64_t cols, int64_t block,
              const std::vector<float>& values);

  absl::Status Write(const std::string& path) const;

 private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Entry> entries_;
};

// Writes a whole file; the error names the path.
absl::Status WriteFile(const std::string& path, const std::string& bytes);

}  // namespace weir::tools
