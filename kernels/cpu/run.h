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

void RunStreamMix(const KernelTable& kernels, Team& team, const StreamMixArgs& args);

}  // namespace weir::kernels::cpu
