// SPDX-License-Identifier: Apache-2.0
//
// Backend: one kind of device as model code sees it: memory, streams with events, the operations,
// and the loading of weights into whatever tiling the kernels like. A Backend and its Ops are
// shared by all threads; a Stream belongs to one thread at a time and runs its work in order.
// Memory is taken at load only; a step never allocates. Allocation and loading may fail for lack of
// memory; work on a stream cannot fail except by poisoning the device, which ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/op/tensor.h"

namespace weir::kernels {

class Ops;

// A place in a stream's order.
struct Event {
  uint64_t sequence = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;

  // Copies between host and device in stream order. The host bytes must stay until the work is
  // done.
  virtual void CopyIn(DeviceAddress to, const void* from, size_t bytes) = 0;
  virtual void CopyOut(void* to, DeviceAddress from, size_t bytes) = 0;
  virtual void Copy(DeviceAddress to, DeviceAddress from, size_t bytes) = 0;  // on the device

  virtual Event Record() = 0;
  virtual bool Done(Event event) = 0;  // never blocks
  virtual void Wait(Event event) = 0;  // blocks

  // Whether somebody waits for each token of what is pushed from now on. A backend that computes on
  // shared threads lets such work go first.
  virtual void SetUrgent(bool urgent) {}

  // Kernels bracket every access to device memory; see CpuBackend's guarded mode.
  virtual void BeginKernel() {}
  virtual void EndKernel() {}
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual const Ops& ops() const = 0;
  virtual std::unique_ptr<Stream> NewStream() = 0;

  virtual absl::StatusOr<DeviceAddress> Allocate(size_t bytes) = 0;  // zeroed, 64-byte aligned
  virtual void Free(DeviceAddress address) = 0;

  // A weight in the backend's own tiling; the backend owns it until Free(matrix.address).
  virtual absl::StatusOr<Matrix> LoadMatrix(const HostMatrix& host) = 0;

  // A table that may be larger than the device's memory. A host backend reads it where it lies: the
  // host bytes stay mapped as long as the table is used.
  virtual absl::StatusOr<Table> MapTable(const HostMatrix& host) {
    return Table{reinterpret_cast<DeviceAddress>(host.values),
                 reinterpret_cast<DeviceAddress>(host.scales),
                 host.rows,
                 host.cols,
                 host.dtype,
                 host.scale_dtype,
                 static_cast<int32_t>(host.block_cols)};
  }

  // How many parallel parts of one operation want scratch of their own: the `lanes` of its comment.
  virtual int lanes() const { return 1; }
};

}  // namespace weir::kernels
