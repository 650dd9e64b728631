// SPDX-License-Identifier: Apache-2.0
//
// AlignedBuffer: memory that direct I/O takes, zeroed, of whole pages. A movable value that owns
// its memory; any thread. Want of memory ends the process, as with the standard containers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "base/stdx/check.h"
#include "base/stdx/units.h"

namespace weir::kv {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(uint64_t bytes) : bytes_(AlignUp<uint64_t>(bytes, 4096)) {
    if (bytes_ == 0) return;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, bytes_)));
    WEIR_CHECK(data_ != nullptr);
    std::memset(data_.get(), 0, bytes_);
  }

  std::byte* data() const { return data_.get(); }
  uint64_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  uint64_t bytes_ = 0;
};

}  // namespace weir::kv
