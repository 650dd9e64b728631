// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/stdx/check.h"

namespace weir::kernels::simt {
namespace {

constexpr size_t kAlign = 256;
constexpr size_t kGap = 256;  // between allocations; nothing in it exists

unsigned char* ReserveArena(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  WEIR_CHECK(at != MAP_FAILED);
  return static_cast<unsigned char*>(at);
}

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes)
    : bytes_(bytes), base_(ReserveArena(bytes)), shadow_(base_, bytes) {}

DeviceMemory::~DeviceMemory() { munmap(base_, bytes_); }

void* DeviceMemory::Allocate(size_t bytes) {
  const size_t begin = used_ + kGap;
  if (bytes > bytes_ || begin > bytes_ - bytes) return nullptr;
  used_ = (begin + bytes + kAlign - 1) / kAlign * kAlign;
  std::memset(shadow_.flags() + begin, kExists, bytes);
  std::memset(base_ + begin, 0xff, bytes);  // reads as NaN
  return base_ + begin;
}

void DeviceMemory::Free(void* at) {
  uint8_t* flag = shadow_.flags() + shadow_.OffsetOf(at);
  const uint8_t* end = shadow_.flags() + bytes_;
  for (; flag != end && (*flag & kExists) != 0; ++flag) *flag = 0;
}

void DeviceMemory::CopyIn(void* to, const void* from, size_t bytes) {
  WEIR_CHECK(shadow_.Contains(to));
  std::memcpy(to, from, bytes);
  uint8_t* flag = shadow_.flags() + shadow_.OffsetOf(to);
  for (size_t i = 0; i < bytes; ++i) flag[i] = static_cast<uint8_t>(flag[i] | kWritten);
}

size_t DeviceMemory::Unwritten(const void* at, size_t bytes) {
  WEIR_CHECK(shadow_.Contains(at));
  const uint8_t* flag = shadow_.flags() + shadow_.OffsetOf(at);
  return static_cast<size_t>(
      std::count_if(flag, flag + bytes, [](uint8_t f) { return (f & kWritten) == 0; }));
}

uint32_t DeviceMemory::BeginLaunch() {
  if (launch_ == kLaunchMax) {
    shadow_.ForgetStamps();
    launch_ = 0;
  }
  return ++launch_;
}

}  // namespace weir::kernels::simt
