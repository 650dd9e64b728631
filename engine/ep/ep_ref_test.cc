// SPDX-License-Identifier: Apache-2.0
//
// What every EpComm owes its model. Single-rank today; further transports join as parameters.
#include "engine/ep/ep_ref.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/ref/ref_backend.h"

namespace weir::engine {
namespace {

using kernels::DType;
using kernels::Tensor;

class EpTest : public ::testing::Test {
 protected:
  ~EpTest() override {
    for (const kernels::DeviceAddress at : taken_) backend_->Free(at);
  }
  template <class T>
  Tensor Put(const std::vector<T>& values, DType dtype) {
    const kernels::DeviceAddress at = *backend_->Allocate(values.size() * sizeof(T));
    taken_.push_back(at);
    stream_->CopyIn(at, values.data(), values.size() * sizeof(T));
    return {at, dtype, {static_cast<int64_t>(values.size()), 1, 1}};
  }
  template <class T>
  std::vector<T> Get(const Tensor& tensor, size_t count) {
    std::vector<T> values(count);
    stream_->CopyOut(values.data(), tensor.address, count * sizeof(T));
    return values;
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::ref::NewRefBackend();
  std::unique_ptr<kernels::Stream> stream_ = backend_->NewStream();
  std::vector<kernels::DeviceAddress> taken_;
};

TEST_F(EpTest, EveryChoiceReachesTheSlotOfItsExpertAndComesBackWeighted) {
  ExpertMap map = ExpertMap::Identity(2, 3);
  map.epoch = Epoch(7);
  map.slot_of[1] = {2, 0, 1};
  const auto made = NewEpRef(backend_.get(), map, {4, 2, 3});
  ASSERT_TRUE(made.ok()) << made.status();
  EpComm& ep = **made;
  EXPECT_EQ(ep.epoch(), Epoch(7));
  EXPECT_EQ(ep.slots(), 3);
  const Tensor x = Put(std::vector<float>{10, 20, 30}, DType::kF32);
  const Tensor expert = Put(std::vector<int32_t>{0, 2, 1, 0, 2, 1}, DType::kI32);
  // Layer 1: expert 0 in slot 2, 1 in slot 0, 2 in slot 1.
  const EpBatch batch = ep.Dispatch(*stream_, {1, 3, x, expert});
  EXPECT_EQ(Get<int32_t>(batch.slot_begin, 4), (std::vector<int32_t>{0, 2, 4, 6}));
  EXPECT_EQ(Get<int32_t>(batch.entry, 6), (std::vector<int32_t>{2, 5, 1, 4, 0, 3}));
  // Layer 0 keeps the identity.
  const EpBatch plain = ep.Dispatch(*stream_, {0, 3, x, expert});
  EXPECT_EQ(Get<int32_t>(plain.entry, 6), (std::vector<int32_t>{0, 3, 2, 5, 1, 4}));
  const Tensor weight = Put(std::vector<float>{1, 2, 3, 4, 5, 6}, DType::kF32);
  const Tensor out = Put(std::vector<float>{1, 10, 1, 10, 1, 10}, DType::kF32);
  const Tensor sum = Put(std::vector<float>{100, 100, 100}, DType::kF32);
  ep.Combine(*stream_, {3, 1, expert, weight, out, sum});
  EXPECT_EQ(Get<float>(sum, 3), (std::vector<float>{121, 143, 165}));
}

}  // namespace
}  // namespace weir::engine
