// SPDX-License-Identifier: Apache-2.0
//
// Directory: one folder of files on a local disk, held by one process at a time. Owned by one
// thread. Submit and Poll(kNow) do not wait for the disk where io_uring is there; the other calls
// are system calls that block for their own time. The directory owns descriptors it opened until
// Close; buffers of a submitted request belong to it until its result is out. Everything may fail
// at any time (full, broken, removed): calls say so in a status, requests in a negative errno or in
// a short count.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::kv {

struct IoRequest {
  enum class Kind : uint8_t { kRead, kWrite, kSync };
  Kind kind = Kind::kRead;
  int fd = -1;
  uint64_t offset = 0;
  std::array<iovec, 2> parts{};  // buffers and sizes in whole pages of 4096
  uint32_t part_count = 0;
  uint64_t cookie = 0;
};

struct IoResult {
  uint64_t cookie = 0;
  int64_t bytes = 0;  // or a negative errno
};

enum class IoWait : uint8_t { kNow, kForOne };

class Directory {
 public:
  struct File {
    std::string name;
    uint64_t bytes = 0;
  };
  enum class Mode : uint8_t { kExisting, kCreate };

  virtual ~Directory() = default;

  virtual absl::StatusOr<std::vector<File>> List() = 0;
  virtual absl::StatusOr<int> Open(std::string_view name, Mode mode) = 0;
  virtual void Close(int fd) = 0;
  // Reserves space from the start of a file; kNoCapacity when the disk is full.
  virtual absl::Status Allocate(int fd, uint64_t bytes) = 0;
  virtual absl::Status Truncate(int fd, uint64_t bytes) = 0;
  virtual absl::Status Remove(std::string_view name) = 0;
  // After it returned OK a crash leaves the new text; before, the old or the new, never a mixture.
  virtual absl::Status Replace(std::string_view name, std::string_view text) = 0;
  virtual absl::StatusOr<std::string> ReadSmall(std::string_view name, uint64_t bytes_max) = 0;

  // False when as many requests are under way as there may be.
  virtual bool Submit(const IoRequest& request) = 0;
  // Appends results in the order of completion. kForOne waits until there is one, if any is under
  // way.
  virtual void Poll(IoWait wait, std::vector<IoResult>* out) = 0;
};

struct DirectoryOptions {
  enum class Engine : uint8_t {
    kBest,
    kPlain
  };  // io_uring where the kernel lets us, else pread and pwrite
  Engine engine = Engine::kBest;
  bool direct = true;    // O_DIRECT where the file system has it
  uint32_t depth = 128;  // requests under way at once
};

// Makes the folder if need be and locks it. kNoCapacity when another process holds it.
absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path,
                                                         const DirectoryOptions& options);

}  // namespace weir::kv
