// SPDX-License-Identifier: Apache-2.0
//
// An emulated device with a queue, the reference beside it, and random problems for both: tensors
// lie in one checked arena that either may read. For tests; on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <vector>

#include "base/stdx/random.h"
#include "kernels/cuda/kernels_sm90.h"
#include "kernels/op/ops.h"
#include "kernels/ref/access.h"
#include "kernels/ref/formats.h"
#include "kernels/ref/ref_backend.h"

namespace weir::kernels::cuda {

extern int g_trials;  // --trials=N
extern bool g_long;   // --long

constexpr double kDistanceMax = 1e-5;
constexpr double kErrorMax = 1e-2;  // of the rms

class KernelFixture : public ::testing::Test {
 protected:
  KernelFixture() : backend_(ref::NewRefBackend()), stream_(backend_->NewStream()) {
    queue_.options.memory = memory_.get();
    queue_.options.count = true;
    queue_.report = &report_;
  }

  template <class T>
  Tensor Put(const std::vector<T>& values, DType dtype) {
    Tensor tensor = Room(static_cast<int64_t>(values.size()), dtype);
    memory_->CopyIn(reinterpret_cast<void*>(tensor.address), values.data(),
                    values.size() * sizeof(T));
    return tensor;
  }
  Tensor Put(const std::vector<float>& values) { return Put(values, DType::kF32); }
  Tensor Put(const std::vector<int32_t>& values) { return Put(values, DType::kI32); }
  Tensor Room(int64_t count, DType dtype = DType::kF32) {
    void* at =
        memory_->Allocate(std::max<size_t>(static_cast<size_t>(count) * DTypeBytes(dtype), 4));
    EXPECT_NE(at, nullptr);
    return {reinterpret_cast<DeviceAddress>(at), dtype, {count, 1, 1}};
  }
  std::vector<float> Uniform(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& x : values) x = static_cast<float>(random_.Next() >> 40) * 0x1p-23f - 1;
    return values;
  }
  // What the tensor cores take: the same inputs for both.
  static std::vector<float> Bf16(std::vector<float> values) {
    for (float& x : values) x = ref::Bf16ToFloat(ref::FloatToBf16(x));
    return values;
  }
  int Pick(int low, int high) {
    return low + static_cast<int>(random_.Next() % static_cast<uint64_t>(high - low + 1));
  }
  template <class T>
  T Among(std::initializer_list<T> choices) {
    return choices.begin()[random_.Next() % choices.size()];
  }

  static std::unique_ptr<simt::DeviceMemory> NewMemory() {
    return std::make_unique<simt::DeviceMemory>(size_t{512} << 20);
  }

  // Runs each trial on another schedule, in memory of its own, and reports what it found.
  template <class F>
  void Trials(F&& trial) {
    for (int i = 0; i < g_trials; ++i) {
      memory_ = NewMemory();
      queue_.options.memory = memory_.get();
      queue_.options.seed = static_cast<uint64_t>(i);
      report_ = simt::Report();
      trial();
      EXPECT_TRUE(report_.clean()) << "trial " << i << ":\n" << report_.Text();
    }
  }

  void ExpectNear(const Tensor& got, const Tensor& want, int64_t count) {
    const auto* x = reinterpret_cast<const float*>(got.address);
    const auto* y = reinterpret_cast<const float*>(want.address);
    double xy = 0;
    double xx = 0;
    double yy = 0;
    double worst = 0;
    for (int64_t i = 0; i < count; ++i) {
      xy += double{x[i]} * y[i];
      xx += double{x[i]} * x[i];
      yy += double{y[i]} * y[i];
      const double error = std::fabs(double{x[i]} - y[i]);
      worst = error <= worst ? worst : error;  // not a number counts
    }
    EXPECT_LE(1 - 2 * xy / (xx + yy), kDistanceMax);
    EXPECT_LE(worst, kErrorMax * std::sqrt(yy / static_cast<double>(count)));
    EXPECT_FALSE(std::isnan(xy));
    EXPECT_EQ(memory_->Unwritten(x, static_cast<size_t>(count) * 4), 0u);
  }
  void ExpectEqual(const Tensor& got, const Tensor& want, int64_t count) {
    const auto* x = reinterpret_cast<const int32_t*>(got.address);
    const auto* y = reinterpret_cast<const int32_t*>(want.address);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(x[i], y[i]) << "element " << i;
    EXPECT_EQ(memory_->Unwritten(x, static_cast<size_t>(count) * 4), 0u);
  }

  static std::vector<unsigned char> Bytes(DeviceAddress at, size_t count) {
    const auto* from = reinterpret_cast<const unsigned char*>(at);
    return {from, from + count};
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<simt::DeviceMemory> memory_ = NewMemory();
  simt::Report report_;
  Queue queue_;
  Random random_{7};
};

}  // namespace weir::kernels::cuda
