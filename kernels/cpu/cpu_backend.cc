// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "base/stdx/units.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matrix.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/tables.h"

namespace weir::kernels::cpu {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// Null for lack of memory. Large blocks ask for large pages: a matrix is read from end to end.
void* Take(size_t bytes) {
  const bool large = bytes >= 2 * kHugePage;
  const size_t alignment = large ? kHugePage : kAlignment;
  void* at = std::aligned_alloc(alignment, AlignUp<size_t>(bytes == 0 ? 1 : bytes, alignment));
  if (at != nullptr && large) madvise(at, bytes, MADV_HUGEPAGE);
  return at;
}

absl::Status NoMemory() {
  return Error(Reason::kNoCapacity, "not enough memory for weights and buffers");
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(Isa isa, int threads)
      : name_(absl::StrCat("cpu/", AbslView(IsaName(isa)))),
        kernels_(KernelsFor(isa)),
        ops_(&kernels_),
        pool_(threads) {}

  std::string_view name() const override { return name_; }
  const Ops& ops() const override { return ops_; }
  std::unique_ptr<Stream> NewStream() override { return std::make_unique<CpuStream>(&pool_); }
  int lanes() const override { return pool_.threads(); }

  absl::StatusOr<DeviceAddress> Allocate(size_t bytes) override {
    void* at = Take(bytes);
    if (at == nullptr) return NoMemory();
    std::memset(at, 0, bytes);
    return reinterpret_cast<DeviceAddress>(at);
  }
  void Free(DeviceAddress address) override { std::free(reinterpret_cast<void*>(address)); }

  absl::StatusOr<Matrix> LoadMatrix(const HostMatrix& host) override {
    WEIR_ASSIGN(MatrixPlan plan, PlanMatrix(host, kernels_.byte_of_output));
    const size_t header = AlignUp<size_t>(sizeof(PackedMatrix), kAlignment);
    auto* at = static_cast<uint8_t*>(Take(header + plan.bytes[0] + plan.bytes[1]));
    if (at == nullptr) return NoMemory();
    Place(at + header, &plan.packed.whole);
    Place(at + header + plan.bytes[0], &plan.packed.second);
    new (at) PackedMatrix(plan.packed);
    if (!Pack(host, plan)) {
      std::free(at);
      return Error(Reason::kBadField, "a weight holds NaN");
    }
    return Matrix{
        reinterpret_cast<DeviceAddress>(at),  host.rows, host.cols, host.dtype, host.scale_dtype,
        static_cast<int32_t>(host.block_cols)};
  }

 private:
  static void Place(const uint8_t* at, Packed* w) {
    w->codes = at;
    w->scales = at + w->tiles * w->tile_bytes;
  }

  // All threads pack; the caller waits.
  bool Pack(const HostMatrix& host, const MatrixPlan& plan) {
    struct Job {
      const HostMatrix* host;
      const MatrixPlan* plan;
      std::atomic<bool>* good;
    };
    std::atomic<bool> good{true};
    CommandQueue queue(&pool_);
    queue.Push(
        [](Team& team, const void* arguments) {
          const Job job = *static_cast<const Job*>(arguments);
          team.For(job.plan->tiles(), 1, [&](const Team::Part&, int64_t tile) {
            if (!PackTile(*job.host, *job.plan, tile)) job.good->store(false);
          });
        },
        Job{&host, &plan, &good});
    queue.Wait(queue.pushed());
    return good.load();
  }

  const std::string name_;
  const KernelTable& kernels_;
  const CpuOps ops_;
  ComputePool pool_;
};

absl::StatusOr<Isa> IsaOf(const CpuOptions& options) {
  if (options.isa.empty()) return ChooseIsa();
  return CheckedIsa(options.isa);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(const CpuOptions& options) {
  WEIR_ASSIGN(const Isa isa, IsaOf(options));
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(isa, options.threads));
}

}  // namespace weir::kernels::cpu
