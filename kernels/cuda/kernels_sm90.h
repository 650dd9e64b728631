// SPDX-License-Identifier: Apache-2.0
//
// The kernels of this folder as operations of kernels/op: each enqueues its launches and returns.
// Any thread that owns the queue; tensors must outlive its work. Shapes outside what a kernel is
// made for are a bug of the caller and abort.
#pragma once

#include "kernels/cuda/queue.h"
#include "kernels/op/attention.h"
#include "kernels/op/compress.h"
#include "kernels/op/engram.h"
#include "kernels/op/gemm.h"
#include "kernels/op/moe.h"
#include "kernels/op/norm.h"
#include "kernels/op/rope.h"
#include "kernels/op/select.h"
#include "kernels/op/streams.h"

namespace weir::kernels::cuda {

void RmsNorm(const Queue& queue, const RmsNormArgs& args);
void Add(const Queue& queue, const AddArgs& args);
void Swiglu(const Queue& queue, const SwigluArgs& args);

void RopeQuery(const Queue& queue, const RopeQueryArgs& args);
// BF16 and F32 stores.
void MlaKvWrite(const Queue& queue, const MlaKvWriteArgs& args);

// BF16 or kFp8Block32 store of 512 + 64 values, rows on 16 bytes, pages of a multiple of 64 tokens
// or a divisor of it. A sequence is cut into splits of a length that its table's room alone
// decides; `workspace` is F32 of MlaWorkspace(args) elements.
int64_t MlaWorkspace(const MlaAttentionArgs& args);
void MlaAttention(const Queue& queue, const MlaAttentionArgs& args, const Tensor& workspace);

// Up to 64 heads of 128 values; keys of kFp4Block32 (V4.1) or kFp8Block128 (V3.2). `workspace` is F32 of
// IndexWorkspace(args) elements; the scratch of the arguments is not used.
int64_t IndexWorkspace(const IndexSelectArgs& args);
void IndexSelect(const Queue& queue, const IndexSelectArgs& args, const Tensor& workspace);

// V4.1's formats: an FP8 window of 512 values and NVFP4 entries.
void SparseAttention(const Queue& queue, const SparseAttentionArgs& args);

// Weights packed by pack.h; inputs in multiples of 8. `workspace` is F32 of LinearWorkspace(rows,
// inputs of all groups) elements. A group has whole blocks of 128 outputs and of 64 inputs.
int64_t LinearWorkspace(int rows, int64_t inputs);
void Linear(const Queue& queue, const LinearArgs& args, const Tensor& workspace);
void GroupedLinear(const Queue& queue, const GroupedLinearArgs& args, const Tensor& workspace);

// The addresses of the slots' weights on the device, I64 [slots] each; shapes and forms are those
// of args.slots[0]. `workspace` is F32 of ExpertWorkspace(args) elements.
struct ExpertTable {
  Tensor gate;
  Tensor up;
  Tensor down;
};
int64_t ExpertWorkspace(const ExpertFfnArgs& args);
void ExpertFfn(const Queue& queue, const ExpertFfnArgs& args, const ExpertTable& table,
               const Tensor& workspace);
// hidden = weight * swiglu(gate, up) as BF16, [entries_max, width] by place; zero beyond the last.
void ExpertSwiglu(const Queue& queue, const ExpertFfnArgs& args, const Tensor& gate,
                  const Tensor& up, int width, const Tensor& hidden);

// Rows of kFp8Block32, kFp4Block16 and kFp4Block32, bit for bit as the reference makes them. Widths
// in multiples of 32, at most 1024; rows of a store at even addresses.
void WindowRows(const Queue& queue, const WindowRowsArgs& args);
void EntryWrite(const Queue& queue, const EntryWriteArgs& args);
void RoundTrip(const Queue& queue, const RoundTripArgs& args);
void RingWrite(const Queue& queue, const RingWriteArgs& args);
void CompressPair(const Queue& queue, const CompressPairArgs& args);

// Four streams, widths in multiples of 4. The weight of StreamMix is F32 as stored.
void EmbedStreams(const Queue& queue, const EmbedStreamsArgs& args);
void StreamMix(const Queue& queue, const StreamMixArgs& args);
void Collapse(const Queue& queue, const CollapseArgs& args);
void Expand(const Queue& queue, const ExpandArgs& args);
void EngramGate(const Queue& queue, const EngramGateArgs& args);

void Embed(const Queue& queue, const EmbedArgs& args);
void GatherRows(const Queue& queue, const GatherRowsArgs& args);
void EngramIds(const Queue& queue, const EngramIdsArgs& args);
void EngramRows(const Queue& queue, const EngramRowsArgs& args);
// FP8 tables with E8M0 scales for 32 columns.
void EngramGather(const Queue& queue, const EngramGatherArgs& args);

// `logit` is F32 [rows, experts], the gate's product.
void MoeSelect(const Queue& queue, const MoeRouteArgs& args, const Tensor& logit);
void MoePermute(const Queue& queue, const MoePermuteArgs& args);
void MoeCombine(const Queue& queue, const MoeCombineArgs& args);

}  // namespace weir::kernels::cuda
