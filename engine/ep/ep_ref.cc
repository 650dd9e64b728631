// SPDX-License-Identifier: Apache-2.0
#include "engine/ep/ep_ref.h"

#include <numeric>
#include <utility>

#include "base/stdx/check.h"

namespace weir::engine {
namespace {

using kernels::DeviceAddress;
using kernels::DType;
using kernels::Tensor;

class EpRef final : public EpComm {
 public:
  EpRef(kernels::Backend* backend, Epoch epoch, const EpRefOptions& options, DeviceAddress slot_of,
        DeviceAddress entry, DeviceAddress slot_begin)
      : backend_(backend),
        epoch_(epoch),
        options_(options),
        slot_of_(slot_of),
        entry_{entry, DType::kI32, {options.rows_max * options.choices, 1, 1}},
        slot_begin_{slot_begin, DType::kI32, {options.experts + 1, 1, 1}} {}
  ~EpRef() override {
    for (const DeviceAddress at : {slot_of_, entry_.address, slot_begin_.address}) {
      backend_->Free(at);
    }
  }

  Epoch epoch() const override { return epoch_; }
  int slots() const override { return options_.experts; }

  EpBatch Dispatch(kernels::Stream& stream, const EpDispatch& args) override {
    WEIR_CHECK(args.rows <= options_.rows_max);
    const Tensor layer_map{slot_of_ + static_cast<size_t>(args.layer) * options_.experts * 4,
                           DType::kI32,
                           {options_.experts, 1, 1}};
    backend_->ops().MoePermute(stream, {args.rows, options_.choices, options_.experts, args.expert,
                                        layer_map, entry_, slot_begin_});
    return {args.rows * options_.choices, args.x, entry_, slot_begin_};
  }

  void Combine(kernels::Stream& stream, const EpCombine& args) override {
    backend_->ops().MoeCombine(stream, {args.rows, options_.choices, args.width, args.expert,
                                        args.weight, args.out, args.sum});
  }

 private:
  kernels::Backend* const backend_;
  const Epoch epoch_;
  const EpRefOptions options_;
  const DeviceAddress slot_of_;  // I32 [moe layers, experts]
  const Tensor entry_;
  const Tensor slot_begin_;
};

}  // namespace

ExpertMap ExpertMap::Identity(int layers, int experts) {
  ExpertMap map;
  std::vector<int32_t> slots(static_cast<size_t>(experts));
  std::iota(slots.begin(), slots.end(), 0);
  map.slot_of.assign(static_cast<size_t>(layers), slots);
  return map;
}

absl::StatusOr<std::unique_ptr<EpComm>> NewEpRef(kernels::Backend* backend, const ExpertMap& map,
                                                 const EpRefOptions& options) {
  std::vector<int32_t> flat;
  for (const std::vector<int32_t>& layer : map.slot_of) {
    WEIR_CHECK(layer.size() == static_cast<size_t>(options.experts));
    flat.insert(flat.end(), layer.begin(), layer.end());
  }
  const size_t entries = static_cast<size_t>(options.rows_max) * options.choices;
  WEIR_ASSIGN(const DeviceAddress slot_of, backend->Allocate(flat.size() * 4));
  WEIR_ASSIGN(const DeviceAddress entry, backend->Allocate(entries * 4));
  WEIR_ASSIGN(const DeviceAddress begin,
              backend->Allocate((static_cast<size_t>(options.experts) + 1) * 4));
  const std::unique_ptr<kernels::Stream> stream = backend->NewStream();
  stream->CopyIn(slot_of, flat.data(), flat.size() * 4);
  stream->Wait(stream->Record());
  return std::unique_ptr<EpComm>(
      std::make_unique<EpRef>(backend, map.epoch, options, slot_of, entry, begin));
}

}  // namespace weir::engine
