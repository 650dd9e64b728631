// SPDX-License-Identifier: Apache-2.0
#include "engine/model/weight_loader.h"

#include <bit>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"

namespace weir::engine {

using kernels::DType;
using kernels::Tensor;

WeightLoader::WeightLoader(const Weights& checkpoint, TensorBlock block, kernels::Backend* backend,
                           DeviceArena* arena)
    : checkpoint_(checkpoint), block_(block), stream_(backend->NewStream()), arena_(arena) {}

kernels::Matrix WeightLoader::Matrix(const std::string& name) {
  return arena_->Load(HostMatrixOf(checkpoint_, name, block_));
}

kernels::Matrix WeightLoader::LinearByHead(const std::string& prefix, int transposed, int plain) {
  kernels::HostMatrix host = HostMatrixOf(checkpoint_, prefix + ".weight", block_);
  host.head_transposed = transposed;
  host.head_plain = plain;
  return arena_->Load(host);
}

Tensor WeightLoader::Floats(const std::string& name) {
  const TensorView* view = checkpoint_.Find(name);
  WEIR_CHECK(view != nullptr && (view->dtype == DType::kF32 || view->dtype == DType::kBf16));
  std::vector<float> values(view->bytes.size() / DTypeBytes(view->dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (view->dtype == DType::kF32) {
      values[i] = LoadAs<float>(view->bytes.data() + i * 4);
    } else {
      const uint32_t bits = LoadAs<uint16_t>(view->bytes.data() + i * 2);
      values[i] = std::bit_cast<float>(bits << 16);
    }
  }
  return Copy(values);
}

Tensor WeightLoader::Rows(const std::string& name) {
  const TensorView* view = checkpoint_.Find(name);
  WEIR_CHECK(view != nullptr && view->shape.size() == 2);
  const Tensor tensor = arena_->Take(view->dtype, view->shape[0], view->shape[1]);
  CopyIn(tensor, view->bytes.data(), view->bytes.size());
  return tensor;
}

Tensor WeightLoader::Copy(const std::vector<float>& values) {
  const Tensor tensor = arena_->Floats(static_cast<int64_t>(values.size()));
  CopyIn(tensor, values.data(), values.size() * sizeof(float));
  return tensor;
}

Tensor WeightLoader::Copy(const std::vector<int32_t>& values) {
  const Tensor tensor = arena_->Ints(static_cast<int64_t>(values.size()));
  CopyIn(tensor, values.data(), values.size() * sizeof(int32_t));
  return tensor;
}

Tensor WeightLoader::Copy(const std::vector<int64_t>& values) {
  const Tensor tensor = arena_->Take(DType::kI64, static_cast<int64_t>(values.size()));
  CopyIn(tensor, values.data(), values.size() * sizeof(int64_t));
  return tensor;
}

void WeightLoader::CopyIn(const Tensor& to, const void* from, size_t bytes) {
  if (to.empty()) return;
  stream_->CopyIn(to.address, from, bytes);
  stream_->Wait(stream_->Record());
}

}  // namespace weir::engine
