// SPDX-License-Identifier: Apache-2.0
//
// The emulated device's memory: one arena with gaps between allocations and a shadow beside it, so
// that a launch on it finds accesses outside, reads of what nobody wrote, and races between blocks.
// Addresses are real ones; what is freed stays out of use. Owned by a test or backend and used by
// one thread at a time; running out is an empty answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/simt/shadow.h"

namespace weir::kernels::simt {

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes = size_t{256} << 20);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 256-byte aligned and unwritten; null when full.
  void* Allocate(size_t bytes);
  void Free(void* at);

  void CopyIn(void* to, const void* from, size_t bytes);
  // Counts the bytes of [at, at + bytes) that no kernel or copy has written.
  size_t Unwritten(const void* at, size_t bytes);

  // A new launch: what earlier ones did lies in its past. Answers its number.
  uint32_t BeginLaunch();
  Shadow& shadow() { return shadow_; }

 private:
  size_t bytes_;
  unsigned char* base_;
  Shadow shadow_;
  size_t used_ = 0;
  uint32_t launch_ = 0;
};

}  // namespace weir::kernels::simt
