// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/check.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {

void RefOps::EmbedStreams(Stream&, const EmbedStreamsArgs&) const { WEIR_CHECK(false && "EmbedStreams"); }
void RefOps::StreamMix(Stream&, const StreamMixArgs&) const { WEIR_CHECK(false && "StreamMix"); }
void RefOps::Collapse(Stream&, const CollapseArgs&) const { WEIR_CHECK(false && "Collapse"); }
void RefOps::Expand(Stream&, const ExpandArgs&) const { WEIR_CHECK(false && "Expand"); }
void RefOps::EngramIds(Stream&, const EngramIdsArgs&) const { WEIR_CHECK(false && "EngramIds"); }
void RefOps::EngramRows(Stream&, const EngramRowsArgs&) const { WEIR_CHECK(false && "EngramRows"); }
void RefOps::EngramGather(Stream&, const EngramGatherArgs&) const { WEIR_CHECK(false && "EngramGather"); }
void RefOps::EngramGate(Stream&, const EngramGateArgs&) const { WEIR_CHECK(false && "EngramGate"); }
void RefOps::GroupedLinear(Stream&, const GroupedLinearArgs&) const { WEIR_CHECK(false && "GroupedLinear"); }
void RefOps::WindowRows(Stream&, const WindowRowsArgs&) const { WEIR_CHECK(false && "WindowRows"); }
void RefOps::RingWrite(Stream&, const RingWriteArgs&) const { WEIR_CHECK(false && "RingWrite"); }
void RefOps::CompressPair(Stream&, const CompressPairArgs&) const { WEIR_CHECK(false && "CompressPair"); }
void RefOps::EntryWrite(Stream&, const EntryWriteArgs&) const { WEIR_CHECK(false && "EntryWrite"); }
void RefOps::RoundTrip(Stream&, const RoundTripArgs&) const { WEIR_CHECK(false && "RoundTrip"); }
void RefOps::IndexSelect(Stream&, const IndexSelectArgs&) const { WEIR_CHECK(false && "IndexSelect"); }
void RefOps::SparseAttention(Stream&, const SparseAttentionArgs&) const { WEIR_CHECK(false && "SparseAttention"); }

}  // namespace weir::kernels::ref
