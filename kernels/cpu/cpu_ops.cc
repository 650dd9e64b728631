// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_ops.h"

#include <cstring>

#include "kernels/cpu/run.h"
#include "kernels/ref/access.h"

namespace weir::kernels::cpu {
namespace {

// What the reference brackets its kernels with; there is nothing to guard here.
class NoStream final : public Stream {
 public:
  void CopyIn(DeviceAddress, const void*, size_t) override {}
  void CopyOut(void*, DeviceAddress, size_t) override {}
  void Copy(DeviceAddress, DeviceAddress, size_t) override {}
  Event Record() override { return {}; }
  bool Done(Event) override { return true; }
  void Wait(Event) override {}
};

CommandQueue& QueueOf(Stream& stream) { return static_cast<CpuStream&>(stream).queue(); }

struct CopyArgs {
  void* to;
  const void* from;
  size_t bytes;
};

void PushCopy(CommandQueue* queue, const CopyArgs& args) {
  if (args.bytes == 0) return;
  queue->Push(
      [](Team&, const void* arguments) {
        const auto& copy = *static_cast<const CopyArgs*>(arguments);
        std::memcpy(copy.to, copy.from, copy.bytes);
      },
      args);
}

}  // namespace

void CpuStream::CopyIn(DeviceAddress to, const void* from, size_t bytes) {
  PushCopy(&queue_, {ref::As<void>(to), from, bytes});
}
void CpuStream::CopyOut(void* to, DeviceAddress from, size_t bytes) {
  PushCopy(&queue_, {to, ref::As<void>(from), bytes});
}
void CpuStream::Copy(DeviceAddress to, DeviceAddress from, size_t bytes) {
  PushCopy(&queue_, {ref::As<void>(to), ref::As<void>(from), bytes});
}

template <auto kRun, class Args>
void CpuOps::Push(Stream& stream, const Args& args) const {
  struct Call {
    const KernelTable* kernels;
    Args args;
  };
  QueueOf(stream).Push(
      [](Team& team, const void* arguments) {
        const auto& call = *static_cast<const Call*>(arguments);
        kRun(*call.kernels, team, call.args);
      },
      Call{kernels_, args});
}

template <auto kOperation, class Args>
void CpuOps::PushReference(Stream& stream, const Args& args) const {
  QueueOf(stream).Push(
      [](Team&, const void* arguments) {
        NoStream none;
        const ref::RefOps reference;
        (reference.*kOperation)(none, *static_cast<const Args*>(arguments));
      },
      args);
}

void CpuOps::Zero(Stream& stream, const Tensor& tensor, int64_t elements) const {
  struct ZeroArgs {
    DeviceAddress at;
    size_t bytes;
  };
  QueueOf(stream).Push(
      [](Team&, const void* arguments) {
        const auto& zero = *static_cast<const ZeroArgs*>(arguments);
        std::memset(ref::As<void>(zero.at), 0, zero.bytes);
      },
      ZeroArgs{tensor.address, static_cast<size_t>(elements) * DTypeBytes(tensor.dtype)});
}

#define WEIR_FAST(Name) \
  void CpuOps::Name(Stream& stream, const Name##Args& args) const { Push<Run##Name>(stream, args); }
#define WEIR_REFERENCE(Name)                                        \
  void CpuOps::Name(Stream& stream, const Name##Args& args) const { \
    PushReference<&ref::RefOps::Name>(stream, args);                \
  }

WEIR_FAST(Embed)
WEIR_FAST(RmsNorm)
WEIR_FAST(Add)
WEIR_FAST(Swiglu)
WEIR_FAST(Linear)
WEIR_FAST(GroupedLinear)
WEIR_FAST(RopeQuery)
WEIR_FAST(IndexRotate)
WEIR_FAST(MlaKvWrite)
WEIR_FAST(MlaAttention)
WEIR_FAST(IndexSelect)
WEIR_FAST(SparseAttention)
WEIR_FAST(MoeRoute)
WEIR_FAST(MoePermute)
WEIR_FAST(ExpertFfn)
WEIR_FAST(MoeCombine)
WEIR_FAST(StreamMix)
WEIR_FAST(GatherRows)
WEIR_FAST(EmbedStreams)
WEIR_FAST(Collapse)
WEIR_FAST(Expand)
WEIR_FAST(EngramRows)
WEIR_FAST(EngramGather)
WEIR_FAST(EngramGate)
WEIR_FAST(WindowRows)
WEIR_FAST(RingWrite)
WEIR_FAST(CompressPair)
WEIR_FAST(EntryWrite)
WEIR_FAST(RoundTrip)
WEIR_FAST(Sample)

void CpuOps::MlaAbsorbQuery(Stream& stream, const MlaAbsorbArgs& args) const {
  Push<RunMlaAbsorbQuery>(stream, args);
}
void CpuOps::MlaExpandValue(Stream& stream, const MlaAbsorbArgs& args) const {
  Push<RunMlaExpandValue>(stream, args);
}

WEIR_REFERENCE(LayerNorm)
WEIR_REFERENCE(EngramIds)
WEIR_REFERENCE(Verify)

}  // namespace weir::kernels::cpu
