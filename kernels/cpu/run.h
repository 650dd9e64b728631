// SPDX-License-Identifier: Apache-2.0
//
// What the pool's leader runs for each operation: the arithmetic of the op headers, split over the
// team. Called in stream order with arguments whose tensors are in place; nothing here fails.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/pool.h"
#include "kernels/op/ops.h"

namespace weir::kernels::cpu {

void RunEmbed(const KernelTable& kernels, Team& team, const EmbedArgs& args);
void RunRmsNorm(const KernelTable& kernels, Team& team, const RmsNormArgs& args);
void RunAdd(const KernelTable& kernels, Team& team, const AddArgs& args);
void RunSwiglu(const KernelTable& kernels, Team& team, const SwigluArgs& args);

void RunLinear(const KernelTable& kernels, Team& team, const LinearArgs& args);
void RunGroupedLinear(const KernelTable& kernels, Team& team, const GroupedLinearArgs& args);
void RunMlaAbsorbQuery(const KernelTable& kernels, Team& team, const MlaAbsorbArgs& args);
void RunMlaExpandValue(const KernelTable& kernels, Team& team, const MlaAbsorbArgs& args);

void RunRopeQuery(const KernelTable& kernels, Team& team, const RopeQueryArgs& args);
void RunMlaKvWrite(const KernelTable& kernels, Team& team, const MlaKvWriteArgs& args);
void RunMlaAttention(const KernelTable& kernels, Team& team, const MlaAttentionArgs& args);

void RunIndexSelect(const KernelTable& kernels, Team& team, const IndexSelectArgs& args);
void RunSparseAttention(const KernelTable& kernels, Team& team, const SparseAttentionArgs& args);

void RunMoeRoute(const KernelTable& kernels, Team& team, const MoeRouteArgs& args);
void RunMoePermute(const KernelTable& kernels, Team& team, const MoePermuteArgs& args);
void RunExpertFfn(const KernelTable& kernels, Team& team, const ExpertFfnArgs& args);
void RunMoeCombine(const KernelTable& kernels, Team& team, const MoeCombineArgs& args);

void RunEmbedStreams(const KernelTable& kernels, Team& team, const EmbedStreamsArgs& args);
void RunStreamMix(const KernelTable& kernels, Team& team, const StreamMixArgs& args);
void RunCollapse(const KernelTable& kernels, Team& team, const CollapseArgs& args);
void RunExpand(const KernelTable& kernels, Team& team, const ExpandArgs& args);

void RunWindowRows(const KernelTable& kernels, Team& team, const WindowRowsArgs& args);
void RunIndexRotate(const KernelTable& kernels, Team& team, const IndexRotateArgs& args);
void RunEntryWrite(const KernelTable& kernels, Team& team, const EntryWriteArgs& args);
void RunRingWrite(const KernelTable& kernels, Team& team, const RingWriteArgs& args);
void RunCompressPair(const KernelTable& kernels, Team& team, const CompressPairArgs& args);
void RunRoundTrip(const KernelTable& kernels, Team& team, const RoundTripArgs& args);
void RunGatherRows(const KernelTable& kernels, Team& team, const GatherRowsArgs& args);
void RunEngramRows(const KernelTable& kernels, Team& team, const EngramRowsArgs& args);
void RunEngramGather(const KernelTable& kernels, Team& team, const EngramGatherArgs& args);
void RunEngramGate(const KernelTable& kernels, Team& team, const EngramGateArgs& args);

void RunSample(const KernelTable& kernels, Team& team, const SampleArgs& args);

}  // namespace weir::kernels::cpu
