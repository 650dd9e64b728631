// SPDX-License-Identifier: Apache-2.0
//
// The operation table: one virtual per operation of the op headers beside it. A backend implements
// all of them; model code is a list of calls on this interface. Calls enqueue work on the stream
// and return; they do not block, allocate or fail. Tensors must outlive the stream's work.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/op/backend.h"
#include "kernels/op/compress.h"
#include "kernels/op/engram.h"
#include "kernels/op/gemm.h"
#include "kernels/op/moe.h"
#include "kernels/op/norm.h"
#include "kernels/op/rope.h"
#include "kernels/op/sample.h"
#include "kernels/op/select.h"
#include "kernels/op/streams.h"

namespace weir::kernels {

class Ops {
 public:
  virtual ~Ops() = default;

  virtual void Embed(Stream& stream, const EmbedArgs& args) const = 0;
  virtual void RmsNorm(Stream& stream, const RmsNormArgs& args) const = 0;
  virtual void LayerNorm(Stream& stream, const LayerNormArgs& args) const = 0;
  virtual void Zero(Stream& stream, const Tensor& tensor, int64_t elements) const = 0;
  virtual void Add(Stream& stream, const AddArgs& args) const = 0;
  virtual void Swiglu(Stream& stream, const SwigluArgs& args) const = 0;
  virtual void GatherRows(Stream& stream, const GatherRowsArgs& args) const = 0;

  virtual void Linear(Stream& stream, const LinearArgs& args) const = 0;
  virtual void MlaAbsorbQuery(Stream& stream, const MlaAbsorbArgs& args) const = 0;
  virtual void MlaExpandValue(Stream& stream, const MlaAbsorbArgs& args) const = 0;

  virtual void RopeQuery(Stream& stream, const RopeQueryArgs& args) const = 0;
  virtual void IndexRotate(Stream& stream, const IndexRotateArgs& args) const = 0;
  virtual void MlaKvWrite(Stream& stream, const MlaKvWriteArgs& args) const = 0;
  virtual void MlaAttention(Stream& stream, const MlaAttentionArgs& args) const = 0;

  virtual void EmbedStreams(Stream& stream, const EmbedStreamsArgs& args) const = 0;
  virtual void StreamMix(Stream& stream, const StreamMixArgs& args) const = 0;
  virtual void Collapse(Stream& stream, const CollapseArgs& args) const = 0;
  virtual void Expand(Stream& stream, const ExpandArgs& args) const = 0;

  virtual void EngramIds(Stream& stream, const EngramIdsArgs& args) const = 0;
  virtual void EngramRows(Stream& stream, const EngramRowsArgs& args) const = 0;
  virtual void EngramGather(Stream& stream, const EngramGatherArgs& args) const = 0;
  virtual void EngramGate(Stream& stream, const EngramGateArgs& args) const = 0;

  virtual void GroupedLinear(Stream& stream, const GroupedLinearArgs& args) const = 0;
  virtual void WindowRows(Stream& stream, const WindowRowsArgs& args) const = 0;
  virtual void RingWrite(Stream& stream, const RingWriteArgs& args) const = 0;
  virtual void CompressPair(Stream& stream, const CompressPairArgs& args) const = 0;
  virtual void EntryWrite(Stream& stream, const EntryWriteArgs& args) const = 0;
  virtual void RoundTrip(Stream& stream, const RoundTripArgs& args) const = 0;
  virtual void IndexSelect(Stream& stream, const IndexSelectArgs& args) const = 0;
  virtual void SparseAttention(Stream& stream, const SparseAttentionArgs& args) const = 0;

  virtual void MoeRoute(Stream& stream, const MoeRouteArgs& args) const = 0;
  virtual void MoePermute(Stream& stream, const MoePermuteArgs& args) const = 0;
  virtual void ExpertFfn(Stream& stream, const ExpertFfnArgs& args) const = 0;
  virtual void MoeCombine(Stream& stream, const MoeCombineArgs& args) const = 0;

  virtual void Sample(Stream& stream, const SampleArgs& args) const = 0;
  virtual void Verify(Stream& stream, const VerifyArgs& args) const = 0;
};

}  // namespace weir::kernels
