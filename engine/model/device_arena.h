// SPDX-License-Identifier: Apache-2.0
//
// DeviceArena: a model's weights or buffers, taken at load and given back together. Owned by one
// object; the backend must outlive it. Taking may fail for lack of memory: the first failure is
// kept and every later tensor is empty, so that a constructor can take its whole list and check
// once.
#pragma once

#include <vector>

#include "base/stdx/status.h"
#include "kernels/op/backend.h"

namespace weir::engine {

class DeviceArena {
 public:
  explicit DeviceArena(kernels::Backend* backend) : backend_(backend) {}
  ~DeviceArena() {
    for (const kernels::DeviceAddress at : taken_) backend_->Free(at);
  }
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  kernels::Tensor Take(kernels::DType dtype, int64_t a, int64_t b = 1, int64_t c = 1) {
    const auto bytes = static_cast<size_t>(a * b * c) * kernels::DTypeBytes(dtype);
    return {Keep(backend_->Allocate(bytes)), dtype, {a, b, c}};
  }
  kernels::Tensor Floats(int64_t a, int64_t b = 1, int64_t c = 1) {
    return Take(kernels::DType::kF32, a, b, c);
  }
  kernels::Tensor Ints(int64_t a, int64_t b = 1) { return Take(kernels::DType::kI32, a, b); }
  kernels::Tensor Bytes(size_t bytes) {
    return Take(kernels::DType::kU8, static_cast<int64_t>(bytes));
  }

  kernels::Matrix Load(const kernels::HostMatrix& host) {
    absl::StatusOr<kernels::Matrix> matrix = backend_->LoadMatrix(host);
    if (!matrix.ok()) {
      if (status_.ok()) status_ = matrix.status();
      return {};
    }
    taken_.push_back(matrix->address);
    return *matrix;
  }

  const absl::Status& status() const { return status_; }

 private:
  kernels::DeviceAddress Keep(const absl::StatusOr<kernels::DeviceAddress>& address) {
    if (!address.ok()) {
      if (status_.ok()) status_ = address.status();
      return 0;
    }
    taken_.push_back(*address);
    return *address;
  }

  kernels::Backend* const backend_;
  std::vector<kernels::DeviceAddress> taken_;
  absl::Status status_;
};

}  // namespace weir::engine
