// SPDX-License-Identifier: Apache-2.0
//
// The reference: every operation as plainly as it can be said, sums in double in an order that
// depends on the row alone. It is the truth that fast backends are compared with, and fast enough
// to serve a small model. Stateless; any thread; work runs inside the call, on the caller's thread.
#pragma once

#include "kernels/op/ops.h"
#include "kernels/ref/access.h"

namespace weir::kernels::ref {

class RefOps : public Ops {
 public:
  explicit RefOps(Numerics numerics = Numerics::kNative) : round_(numerics == Numerics::kVendor) {}

  void Embed(Stream& stream, const EmbedArgs& args) const override;
  void RmsNorm(Stream& stream, const RmsNormArgs& args) const override;
  void LayerNorm(Stream& stream, const LayerNormArgs& args) const override;
  void Zero(Stream& stream, const Tensor& tensor, int64_t elements) const override;
  void Add(Stream& stream, const AddArgs& args) const override;
  void Swiglu(Stream& stream, const SwigluArgs& args) const override;
  void GatherRows(Stream& stream, const GatherRowsArgs& args) const override;

  void Linear(Stream& stream, const LinearArgs& args) const override;
  void MlaAbsorbQuery(Stream& stream, const MlaAbsorbArgs& args) const override;
  void MlaExpandValue(Stream& stream, const MlaAbsorbArgs& args) const override;

  void RopeQuery(Stream& stream, const RopeQueryArgs& args) const override;
  void IndexRotate(Stream& stream, const IndexRotateArgs& args) const override;
  void MlaKvWrite(Stream& stream, const MlaKvWriteArgs& args) const override;
  void MlaAttention(Stream& stream, const MlaAttentionArgs& args) const override;

  void EmbedStreams(Stream& stream, const EmbedStreamsArgs& args) const override;
  void StreamMix(Stream& stream, const StreamMixArgs& args) const override;
  void Collapse(Stream& stream, const CollapseArgs& args) const override;
  void Expand(Stream& stream, const ExpandArgs& args) const override;

  void EngramIds(Stream& stream, const EngramIdsArgs& args) const override;
  void EngramRows(Stream& stream, const EngramRowsArgs& args) const override;
  void EngramGather(Stream& stream, const EngramGatherArgs& args) const override;
  void EngramGate(Stream& stream, const EngramGateArgs& args) const override;

  void GroupedLinear(Stream& stream, const GroupedLinearArgs& args) const override;
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
  const Rounding round_;
};

}  // namespace weir::kernels::ref
