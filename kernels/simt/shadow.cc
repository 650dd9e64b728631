// SPDX-License-Identifier: Apache-2.0
#include "kernels/simt/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/stdx/check.h"

namespace weir::kernels::simt {
namespace {

// Zero pages that cost nothing until they are touched.
void* Reserve(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  WEIR_CHECK(at != MAP_FAILED);
  return at;
}

}  // namespace

Shadow::Shadow(const void* base, size_t bytes)
    : base_(static_cast<const unsigned char*>(base)),
      bytes_(bytes),
      flags_(static_cast<uint8_t*>(Reserve(bytes))),
      cells_(static_cast<Cell*>(Reserve(bytes * sizeof(Cell)))) {}

Shadow::~Shadow() {
  munmap(flags_, bytes_);
  munmap(static_cast<void*>(cells_), bytes_ * sizeof(Cell));
}

void Shadow::Reset(size_t bytes, size_t exists) {
  std::memset(flags_, 0, bytes);
  std::memset(flags_, kExists, exists);
  std::fill_n(cells_, bytes, Cell());
}

void Shadow::ForgetStamps() {
  madvise(static_cast<void*>(cells_), bytes_ * sizeof(Cell), MADV_DONTNEED);
}

}  // namespace weir::kernels::simt
