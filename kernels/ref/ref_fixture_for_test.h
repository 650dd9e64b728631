// SPDX-License-Identifier: Apache-2.0
//
// A reference backend with a stream, and vectors moved in and out; memory is given back at the end.
// For tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/stdx/random.h"
#include "kernels/op/ops.h"
#include "kernels/ref/ref_backend.h"

namespace weir::kernels {

class RefFixture : public ::testing::Test {
 protected:
  explicit RefFixture(Numerics numerics = Numerics::kNative)
      : backend_(ref::NewRefBackend(ref::Guard::kOff, numerics)), stream_(backend_->NewStream()) {}
  ~RefFixture() override {
    for (const DeviceAddress at : taken_) backend_->Free(at);
  }
  Tensor Put(const std::vector<float>& values) { return PutAs(values, DType::kF32); }
  Tensor Put(const std::vector<int32_t>& values) { return PutAs(values, DType::kI32); }
  Tensor Put(const std::vector<int64_t>& values) { return PutAs(values, DType::kI64); }
  // Zeros, four bytes each.
  Tensor Room(int64_t count, DType dtype = DType::kF32) {
    return PutAs(std::vector<int32_t>(static_cast<size_t>(count)), dtype);
  }
  template <class T>
  std::vector<T> Get(const Tensor& t, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    stream_->CopyOut(values.data(), t.address, values.size() * sizeof(T));
    return values;
  }
  std::vector<float> Floats(const Tensor& t, int64_t count) { return Get<float>(t, count); }
  std::vector<int32_t> Ints(const Tensor& t, int64_t count) { return Get<int32_t>(t, count); }

  // Uniform in [-1, 1).
  static std::vector<float> Random(size_t count, uint64_t seed) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(RandomUnit(seed, 0, i) * 2 - 1);
    }
    return values;
  }
  Matrix Load(const HostMatrix& host) {
    const Matrix matrix = *backend_->LoadMatrix(host);
    taken_.push_back(matrix.address);
    return matrix;
  }
  Matrix Load(const std::vector<float>& values, int64_t rows, int64_t cols) {
    return Load({reinterpret_cast<const std::byte*>(values.data()), DType::kF32, rows, cols});
  }
  const Ops& ops() { return backend_->ops(); }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceAddress> taken_;

 private:
  template <class T>
  Tensor PutAs(const std::vector<T>& values, DType dtype) {
    const DeviceAddress at = *backend_->Allocate(values.size() * sizeof(T));
    taken_.push_back(at);
    stream_->CopyIn(at, values.data(), values.size() * sizeof(T));
    return {at, dtype, {static_cast<int64_t>(values.size()), 1, 1}};
  }
};

}  // namespace weir::kernels
