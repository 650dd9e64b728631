// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/ref_backend.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "base/stdx/units.h"
#include "kernels/ref/access.h"
#include "kernels/ref/matrix.h"
#include "kernels/ref/ref_ops.h"

namespace weir::kernels::ref {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kGuardedBytes = size_t{4} << 30;  // address space only

// One reserved range that is accessible while at least one kernel runs.
class GuardedRange {
 public:
  GuardedRange()
      : base_(mmap(nullptr, kGuardedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0)) {
    WEIR_CHECK(base_ != MAP_FAILED);
  }
  ~GuardedRange() { munmap(base_, kGuardedBytes); }
  GuardedRange(const GuardedRange&) = delete;
  GuardedRange& operator=(const GuardedRange&) = delete;

  DeviceAddress Take(size_t bytes) {
    const size_t at = AlignUp(used_, kAlignment);
    if (bytes > kGuardedBytes - at) return 0;
    used_ = at + bytes;
    return reinterpret_cast<DeviceAddress>(base_) + at;
  }
  void Open() {
    if (depth_++ == 0) Protect(PROT_READ | PROT_WRITE);
  }
  void Close() {
    if (--depth_ == 0) Protect(PROT_NONE);
  }

 private:
  void Protect(int mode) {
    if (used_ > 0) WEIR_CHECK(mprotect(base_, AlignUp<size_t>(used_, 4096), mode) == 0);
  }

  void* const base_;
  size_t used_ = 0;
  int depth_ = 0;
};

class RefStream final : public Stream {
 public:
  explicit RefStream(GuardedRange* guard) : guard_(guard) {}

  void CopyIn(DeviceAddress to, const void* from, size_t bytes) override {
    const KernelScope scope(*this);
    if (bytes > 0) std::memcpy(As<void>(to), from, bytes);
  }
  void CopyOut(void* to, DeviceAddress from, size_t bytes) override {
    const KernelScope scope(*this);
    if (bytes > 0) std::memcpy(to, As<void>(from), bytes);
  }
  void Copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    const KernelScope scope(*this);
    if (bytes > 0) std::memcpy(As<void>(to), As<void>(from), bytes);
  }
  Event Record() override { return {++recorded_}; }
  bool Done(Event event) override { return event.sequence <= recorded_; }
  void Wait(Event event) override { WEIR_CHECK(Done(event)); }
  void BeginKernel() override {
    if (guard_ != nullptr) guard_->Open();
  }
  void EndKernel() override {
    if (guard_ != nullptr) guard_->Close();
  }

 private:
  GuardedRange* const guard_;
  uint64_t recorded_ = 0;
};

class RefBackend final : public Backend {
 public:
  RefBackend(Guard guard, Numerics numerics)
      : ops_(numerics),
        guard_(guard == Guard::kOn ? std::make_unique<GuardedRange>() : nullptr) {}

  std::string_view name() const override { return "ref"; }
  const Ops& ops() const override { return ops_; }
  std::unique_ptr<Stream> NewStream() override { return std::make_unique<RefStream>(guard_.get()); }

  absl::StatusOr<DeviceAddress> Allocate(size_t bytes) override {
    const size_t size = AlignUp<size_t>(bytes == 0 ? 1 : bytes, kAlignment);
    if (guard_ != nullptr) {
      const DeviceAddress at = guard_->Take(size);
      if (at == 0) return Error(Reason::kNoCapacity, "the guarded range is full");
      return at;
    }
    void* at = std::aligned_alloc(kAlignment, size);
    if (at == nullptr) {
      return Error(Reason::kNoCapacity, "not enough memory for weights and buffers");
    }
    std::memset(at, 0, size);
    return reinterpret_cast<DeviceAddress>(at);
  }
  void Free(DeviceAddress address) override {
    if (guard_ == nullptr) std::free(As<void>(address));
  }

  absl::StatusOr<Matrix> LoadMatrix(const HostMatrix& host) override {
    WEIR_ASSIGN(const DeviceAddress at, Allocate(MatrixBytes(host.rows, host.cols)));
    RefStream stream(guard_.get());
    const KernelScope scope(stream);
    FillMatrix(host, As<float>(at));
    return Matrix{at,         host.rows,        host.cols,
                  host.dtype, host.scale_dtype, static_cast<int32_t>(host.block_cols)};
  }

 private:
  const RefOps ops_;
  const std::unique_ptr<GuardedRange> guard_;
};

}  // namespace

std::unique_ptr<Backend> NewRefBackend(Guard guard, Numerics numerics) {
  return std::make_unique<RefBackend>(guard, numerics);
}

}  // namespace weir::kernels::ref
