// SPDX-License-Identifier: Apache-2.0
//
// Arena: memory that holds KV pages, and ArenaView: another process's arena, mapped for reading.
// Creating and mapping block for a few system calls; the memory itself may be used from any thread,
// with the ordering of its contents being the users' affair. An Arena owns its mapping and memory
// file; a view owns its mapping, which stays valid when the owner of the arena dies. Creation fails
// for want of memory or descriptors; a view is refused unless it is provably the arena described.
//
// A shared arena is a memory file whose size is sealed, so that a reader can never run into a hole
// behind a truncation, and whose future writable mappings are sealed off, so that a peer that opens
// it through /proc can only read. Its last page carries a random token: a recycled pid or descriptor
// number leads to another file or token, never to another arena's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kvstore/transfer/region_descriptor.h"

namespace weir::kv {

class Arena {
 public:
  // Zero-filled on first touch, in large pages where the kernel grants them. `bytes` > 0.
  static absl::StatusOr<std::unique_ptr<Arena>> CreateShared(uint64_t bytes);
  static absl::StatusOr<std::unique_ptr<Arena>> CreatePrivate(uint64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }  // page-aligned
  uint64_t bytes() const { return bytes_; }
  bool shared() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const RegionToken& token() const { return token_; }

 private:
  Arena(std::byte* data, uint64_t bytes, uint64_t mapped, int fd, const RegionToken& token)
      : data_(data), bytes_(bytes), mapped_(mapped), fd_(fd), token_(token) {}

  std::byte* const data_;
  const uint64_t bytes_;
  const uint64_t mapped_;  // with the trailer page
  const int fd_;           // -1 for a private arena
  const RegionToken token_;
};

class ArenaView {
 public:
  // Maps the arena that a kShm descriptor names, if it lives on this boot of this host and we may.
  static absl::StatusOr<std::shared_ptr<const ArenaView>> Map(const RegionDescriptor& descriptor);
  ~ArenaView();
  ArenaView(const ArenaView&) = delete;
  ArenaView& operator=(const ArenaView&) = delete;

  const std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  ArenaView(const std::byte* data, uint64_t bytes, uint64_t mapped)
      : data_(data), bytes_(bytes), mapped_(mapped) {}

  const std::byte* const data_;
  const uint64_t bytes_;
  const uint64_t mapped_;
};

// Names this boot of this host; zero if the kernel does not tell.
RegionToken BootToken();

// The descriptor under which peers on this host can map a shared arena.
RegionDescriptor DescribeShared(uint32_t region, const Arena& arena);

}  // namespace weir::kv
