// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend beside the reference: random weights in every stored form, a backend with what a
// test has put on it, and a test case per level of instructions. For tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/stdx/random.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/op/ops.h"
#include "kernels/ref/access.h"
#include "kernels/ref/ref_backend.h"

namespace weir::kernels {

inline std::vector<float> Random(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(RandomUnit(seed, 0, i) * 2 - 1);
  return values;
}

// A weight in one of the stored forms.
struct Stored {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  HostMatrix host;
};

enum class Form { kF32, kBf16, kFp8Block128, kFp8Mx, kFp8Odd, kFp4 };

inline Stored MakeWeight(Form form, int64_t rows, int64_t cols, uint64_t seed) {
  Stored w;
  const auto count = static_cast<size_t>(rows * cols);
  w.host.rows = rows;
  w.host.cols = cols;
  const std::vector<float> random = Random(count, seed);
  const auto put = [](std::vector<std::byte>* to, const void* from, size_t bytes) {
    const auto* at = static_cast<const std::byte*>(from);
    to->insert(to->end(), at, at + bytes);
  };
  if (form == Form::kF32) {
    w.host.dtype = DType::kF32;
    put(&w.values, random.data(), count * 4);
  } else if (form == Form::kBf16) {
    w.host.dtype = DType::kBf16;
    for (const float value : random) {
      const uint16_t code = ref::FloatToBf16(value);
      put(&w.values, &code, 2);
    }
  } else {
    // Every code, subnormals included, but NaN.
    for (size_t i = 0; i < (form == Form::kFp4 ? count / 2 : count); ++i) {
      auto code = static_cast<uint8_t>(RandomBits(seed, 1, i));
      if (form != Form::kFp4 && (code & 127) == 127) code = 0;
      put(&w.values, &code, 1);
    }
    const bool e8m0 = form == Form::kFp8Mx || form == Form::kFp4;
    w.host.dtype = form == Form::kFp4 ? DType::kI8 : DType::kF8E4m3;
    w.host.scale_dtype = e8m0 ? DType::kF8E8m0 : DType::kF32;
    w.host.block_cols = form == Form::kFp8Block128 ? 128 : form == Form::kFp8Odd ? 16 : 32;
    w.host.block_rows = form == Form::kFp4 ? 1 : w.host.block_cols;
    const int64_t blocks = (rows + w.host.block_rows - 1) / w.host.block_rows *
                           ((cols + w.host.block_cols - 1) / w.host.block_cols);
    for (int64_t i = 0; i < blocks; ++i) {
      const double unit = RandomUnit(seed, 2, static_cast<uint64_t>(i));
      const auto byte = static_cast<uint8_t>(120 + unit * 8);
      const auto scale = static_cast<float>(0.01 + unit);
      put(&w.scales, e8m0 ? static_cast<const void*>(&byte) : &scale, e8m0 ? 1 : 4);
    }
    w.host.scales = w.scales.data();
  }
  w.host.values = w.values.data();
  return w;
}

// One backend with what a test has put on it.
class Side {
 public:
  explicit Side(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)), stream_(backend_->NewStream()) {}
  ~Side() {
    stream_->Wait(stream_->Record());
    for (const DeviceAddress at : taken_) backend_->Free(at);
  }

  template <class T>
  Tensor Put(const std::vector<T>& values) {
    const DeviceAddress at = *backend_->Allocate(values.size() * sizeof(T));
    taken_.push_back(at);
    stream_->CopyIn(at, values.data(), values.size() * sizeof(T));
    stream_->Wait(stream_->Record());
    return {at,
            std::is_same_v<T, float> ? DType::kF32 : DType::kI32,
            {static_cast<int64_t>(values.size()), 1, 1}};
  }
  Tensor Room(int64_t count) { return Put(std::vector<float>(static_cast<size_t>(count))); }
  Matrix Load(const HostMatrix& host) {
    const Matrix matrix = *backend_->LoadMatrix(host);
    taken_.push_back(matrix.address);
    return matrix;
  }
  template <class T = float>
  std::vector<T> Get(const Tensor& t) {
    std::vector<T> values(static_cast<size_t>(t.elements()));
    stream_->CopyOut(values.data(), t.address, values.size() * sizeof(T));
    stream_->Wait(stream_->Record());
    return values;
  }
  const Ops& ops() const { return backend_->ops(); }
  Stream& stream() { return *stream_; }
  Backend& backend() { return *backend_; }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceAddress> taken_;
};

class CpuTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!cpu::CheckedIsa(GetParam()).ok()) GTEST_SKIP() << "not on this machine";
  }
  Side Cpu(int threads = 2) {
    cpu::CpuOptions options;
    options.threads = threads;
    options.isa = GetParam();
    return Side(*cpu::NewCpuBackend(options));
  }
  // What the reference answers. All levels of a test ask the same things in the same order, so the
  // first of them asks for all.
  template <class T>
  const std::vector<T>& Truth(const std::function<std::vector<T>(Side&)>& work) {
    static std::map<std::string, std::vector<T>> known;
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string name = info->name();
    const std::string question = std::string(info->test_suite_name()) + "." +
                                 name.substr(0, name.find('/')) + " " + std::to_string(asked_++);
    const auto [at, fresh] = known.try_emplace(question);
    if (fresh) {
      Side truth(ref::NewRefBackend());
      at->second = work(truth);
    }
    return at->second;
  }
  // The same numbers from the reference and from here, with 1 and 2 threads.
  void CompareExactly(const std::function<std::vector<int32_t>(Side&)>& work) {
    const std::vector<int32_t>& want = Truth<int32_t>(work);
    for (const int threads : {1, 2}) {
      Side side = Cpu(threads);
      EXPECT_EQ(work(side), want) << threads << " threads";
    }
  }
  // Runs `work` on the reference and here, with 1 and 2 threads, and compares what it returns:
  // within `tolerance` of the spread, and the same bits for both numbers of threads.
  void Compare(double tolerance, const std::function<std::vector<float>(Side&)>& work) {
    const std::vector<float>& want = Truth<float>(work);
    Side one = Cpu(1);
    const std::vector<float> have = work(one);
    Side two = Cpu(2);
    EXPECT_EQ(work(two), have) << "threads change bits";
    ExpectNear(have, want, tolerance);
  }
  static void ExpectNear(const std::vector<float>& have, const std::vector<float>& want,
                         double tolerance) {
    ASSERT_EQ(have.size(), want.size());
    double square = 0;
    for (const float x : want) square += double{x} * x;
    const double spread = std::sqrt(square / static_cast<double>(want.size()));
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double difference = std::abs(double{have[i]} - want[i]);
      if (!(difference <= worst)) worst = difference;
    }
    EXPECT_LE(worst, tolerance * spread);
  }

 private:
  int asked_ = 0;
};

inline constexpr const char* kIsaNames[] = {"scalar", "avx2", "avx512", "avx512vnni"};
inline std::string IsaTestName(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

}  // namespace weir::kernels
