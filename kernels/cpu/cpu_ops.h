// SPDX-License-Identifier: Apache-2.0
//
// The operations of the CPU backend. A call copies its arguments into the stream's queue and
// returns; the pool's leader runs it later. What has no fast form yet runs as the reference does,
// on the leader alone; operations that read a Matrix never do, because their weights are packed.
// Stateless but for the choice of kernels; any thread.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/pool.h"
#include "kernels/op/ops.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::cpu {

class CpuStream final : public Stream {
 public:
  explicit CpuStream(ComputePool* pool) : queue_(pool) {}

  void CopyIn(DeviceAddress to, const void* from, size_t bytes) override;
  void CopyOut(void* to, DeviceAddress from, size_t bytes) override;
  void Copy(DeviceAddress to, DeviceAddress from, size_t bytes) override;
  Event Record() override { return {queue_.pushed()}; }
  bool Done(Event event) override { return queue_.Done(event.sequence); }
  void Wait(Event event) override { queue_.Wait(event.sequence); }

  void SetUrgent(bool urgent) override { queue_.SetUrgent(urgent); }

  CommandQueue& queue() { return queue_; }

 private:
  CommandQueue queue_;
};

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const KernelTable* kernels) : kernels_(kernels) {}

  void Embed(Stream& stream, const EmbedArgs& args) const override;
  void RmsNorm(Stream& stream, const RmsNormArgs& args) const override;
  void LayerNorm(Stream& stream, const LayerNormArgs& args) const override;
  void Zero(Stream& stream, const Tensor& tensor, int64_t elements) const override;
  void Add(Stream& stream, const AddArgs& args) const override;
  void Swiglu(Stream& stream, const SwigluArgs& args) const override;
  void GatherRows(Stream& stream, const GatherRowsArgs& args) const override;
  void EmbedStreams(Stream& stream, const EmbedStreamsArgs& args) const override;
  void StreamMix(Stream& stream, const StreamMixArgs& args) const override;
  void Collapse(Stream& stream, const CollapseArgs& args) const override;
  void Expand(Stream& stream, const ExpandArgs& args) const override;

  void EngramIds(Stream& stream, const EngramIdsArgs& args) const override;
  void EngramRows(Stream& stream, const EngramRowsArgs& args) const override;
  void EngramGather(Stream& stream, const EngramGatherArgs& args) const override;
  void EngramGate(Stream& stream, const EngramGateArgs& args) const override;

  void Linear(Stream& stream, const LinearArgs& args) const override;
  void GroupedLinear(Stream& stream, const GroupedLinearArgs& args) const override;
  void MlaAbsorbQuery(Stream& stream, const MlaAbsorbArgs& args) const override;
  void MlaExpandValue(Stream& stream, const MlaAbsorbArgs& args) const override;

  void RopeQuery(Stream& stream, const RopeQueryArgs& args) const override;
  void IndexRotate(Stream& stream, const IndexRotateArgs& args) const override;
  void MlaKvWrite(Stream& stream, const MlaKvWriteArgs& args) const override;
  void MlaAttention(Stream& stream, const MlaAttentionArgs& args) const override;
  void WindowRows(Stream& stream, const WindowRowsArgs& args) const override;
  void RingWrite(Stream& stream, const RingWriteArgs& args) const override;
  void CompressPair(Stream& stream, const CompressPairArgs& args) const override;
  void EntryWrite(Stream& stream, const EntryWriteArgs& args) const override;
  void RoundTrip(Stream& stream, const RoundTripArgs& args) const override;
  void IndexSelect(Stream& stream, const IndexSelectArgs& args) const override;
  void SparseAttention(Stream& stream, const SparseAttentionArgs& args) const override;

  void MoeRoute(Stream& stream, const MoeRouteArgs& args) const override;
  void MoePermute(Stream& stream, const MoePermuteArgs& args) const override;
  void ExpertFfn(Stream& stream, const ExpertFfnArgs& args) const override;
  void MoeCombine(Stream& stream, const MoeCombineArgs& args) const override;

  void Sample(Stream& stream, const SampleArgs& args) const override;
  void Verify(Stream& stream, const VerifyArgs& args) const override;

 private:
  // Queues kRun(kernels, team, args).
  template <auto kRun, class Args>
  void Push(Stream& stream, const Args& args) const;
  // Queues the reference's operation.
  template <auto kOperation, class Args>
  void PushReference(Stream& stream, const Args& args) const;

  const KernelTable* const kernels_;
};

}  // namespace weir::kernels::cpu
